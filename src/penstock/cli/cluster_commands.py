"""The commands that ask a cluster, in the order in which ``penstock --help`` shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from penstock.cli import change_job, job_logs, rebalance, show_jobs, show_nodes, submit_job
from penstock.cli.exit_codes import EPILOG

_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("submit", submit_job.submit),
    ("list", show_jobs.list_jobs),
    ("status", show_jobs.status),
    ("logs", job_logs.logs),
    ("kill", change_job.kill),
    ("update", submit_job.update),
    ("migrate", change_job.migrate),
    ("scale", change_job.scale),
    ("resubmit", change_job.resubmit),
    ("rebalance", rebalance.rebalance),
    ("nodes", show_nodes.nodes),
    ("alarms", show_nodes.alarms),
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for name, command in _COMMANDS:
        app.command(name, epilog=EPILOG)(command)
