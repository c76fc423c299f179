"""``penstock kill``, ``migrate``, ``scale``, ``resubmit`` and ``forget``.

Change what a cluster does with a job.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import (
    Form,
    JobName,
    MasterUrl,
    Output,
    Timeout,
    Wait,
    connect_client,
)
from penstock.cli.job_wait import find_job, time_limit, wait_for_phase
from penstock.cli.setting_options import settings_options
from penstock.job_settings import Resources


@user_errors
def kill(
    job: JobName,
    drain: Annotated[bool, typer.Option("--drain", help="Process all available input first.")] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """End a job after its current batch. Its state and positions are kept: penstock resubmit continues from
    there.
    """
    with connect_client(master_url) as client:
        _tell(client.kill(job, drain), output, wait)
        if wait:
            limit = time_limit(timeout, lasting=drain)
            _print(wait_for_phase(client, job, ("ENDED",), limit=limit), output)


@user_errors
def migrate(
    job: JobName,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node to move its driver to.")],
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Move the driver of a job to another node, where the job continues from its last batch."""
    with connect_client(master_url) as client:
        _tell(client.migrate(job, to), output)


@settings_options(Resources)
@user_errors
def scale(
    *,
    job: JobName,
    settings: dict[str, Any],
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A node that it may use; repeatable, '' for all."),
    ] = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Change the resources of a job while it runs."""
    if not settings and node is None:
        raise typer.BadParameter("name what to change: --executors, --cores, --memory, --node, …")
    nodes = None if node is None else [name for name in node if name]
    with connect_client(master_url) as client:
        _tell(client.scale(job, settings, nodes), output)


@user_errors
def resubmit(
    job: JobName,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start from scratch: delete its state and positions.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Restart a job that has ended or failed; a running job gets a new worker."""
    with connect_client(master_url) as client:
        before = find_job(client, job) if wait else None
        _tell(client.resubmit(job, fresh), output, wait)
        if wait:
            limit = time_limit(timeout)
            _print(wait_for_phase(client, job, ("RUNNING", "ENDED"), before=before, limit=limit), output)


def _tell(done: dict[str, Any], output: Output, more: bool = False) -> None:
    typer.echo(f"{done['name']}: {done['reason']}", err=True)
    if not more:
        _print(done, output)


def _print(found: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(found))


@user_errors
def forget(
    job: JobName,
    data: Annotated[
        bool,
        typer.Option(
            "--data",
            help="Also delete its data: positions, state, open windows, copies on other nodes. Required for "
            "a job that keeps its data with its node.",
        ),
    ] = False,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Remove a job that has ended or failed from the cluster. Logs are kept."""
    with connect_client(master_url) as client:
        done = client.forget(job, data)
    typer.echo(f"{done['name']}: {done['reason']}", err=True)
    if output is Output.JSON:
        typer.echo(json.dumps(done))
