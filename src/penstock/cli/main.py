"""``penstock``: the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli.command_errors import EPILOG

_LOCAL_COMMANDS = {
    "run": "job_run:run",
    "explain": "job_plan:explain",
    "place": "placement:place",
    "simulate": "simulation:simulate_command",
}
_CLUSTER_COMMANDS = {
    "submit": "job_submission:submit",
    "list": "job_status:list_jobs",
    "status": "job_status:status",
    "logs": "job_logs:logs",
    "kill": "job_control:kill",
    "update": "job_submission:update",
    "migrate": "job_control:migrate",
    "scale": "job_control:scale",
    "resubmit": "job_control:resubmit",
    "forget": "job_control:forget",
    "rebalance": "node:rebalance",
    "nodes": "node:nodes",
    "alarms": "node:alarms",
}
_PROCESS_COMMANDS = {
    "up": "cluster:up",
    "down": "cluster:down",
    "doctor": "doctor:doctor",
    "prepare": "cluster_setup:prepare",
    "key": "cluster_setup:key",
    "master": "master:master",
    "supervisor": "supervisor:supervisor",
    "zookeeper": "cluster_setup:zookeeper",
}
_GROUPS = {"log": "log:app"}
COMMANDS: Mapping[str, str] = {**_LOCAL_COMMANDS, **_CLUSTER_COMMANDS, **_PROCESS_COMMANDS, **_GROUPS}
"""The module and function (or command group) of each command, in the order of ``--help``.

Modules are imported on demand: otherwise a daemon would keep those of all commands in its memory, and each
command would spend half of its time on importing the others.
"""


def run() -> None:
    """Run the command line."""
    command_line(sys.argv[1:])()


def command_line(words: Sequence[str] = ()) -> typer.Typer:
    """Return an application with the command that the arguments name, or else with all commands."""
    app = typer.Typer(
        name="penstock",
        help="Stream jobs in Python that run on Spark.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_penstock)
    for name in [words[0]] if words and words[0] in COMMANDS else COMMANDS:
        if name in _GROUPS:
            app.add_typer(_find(name), name=name)
        else:
            app.command(name, epilog=EPILOG if name in _CLUSTER_COMMANDS else None)(_find(name))
    return app


def _find(name: str) -> Any:
    module, attribute = COMMANDS[name].split(":")
    return getattr(import_module(f"penstock.cli.{module}"), attribute)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Stream jobs in Python that run on Spark."""


if __name__ == "__main__":
    run()
