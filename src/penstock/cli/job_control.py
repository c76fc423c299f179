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
    read_memory,
    usage,
)
from penstock.cli.job_wait import find_job, time_limit, wait_for_phase


@user_errors
def kill(
    job: JobName,
    drain: Annotated[bool, typer.Option("--drain", help="Process first what its sources have.")] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """End a job after the batch that runs. What it has done stays: penstock resubmit goes on from there."""
    with connect_client(master_url) as client:
        _tell(client.kill(job, drain), output, wait)
        if wait:
            limit = time_limit(timeout, lasting=drain)
            _print(wait_for_phase(client, job, ("ENDED",), limit=limit), output)


@user_errors
def migrate(
    job: JobName,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node that shall have its driver.")],
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Move a job to another node; it goes on there from where it is."""
    with connect_client(master_url) as client:
        _tell(client.migrate(job, to), output)


@user_errors
def scale(
    job: JobName,
    executors: Annotated[int | None, typer.Option(min=0, help="How many executors.")] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores of the driver's node.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of the driver.")] = None,
    executor_cores: Annotated[int | None, typer.Option(min=1, help="Cores of each executor.")] = None,
    executor_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each executor.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A node it may use; repeatable, '' for all."),
    ] = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Change what a job may use, while it runs."""
    given = {
        "executors": executors,
        "cores": cores,
        "memory": None if memory is None else usage(read_memory, memory),
        "executor_cores": executor_cores,
        "executor_memory": None if executor_memory is None else usage(read_memory, executor_memory),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes and node is None:
        raise typer.BadParameter("say what to change: --executors, --cores, --memory, --node, …")
    nodes = None if node is None else [name for name in node if name]
    with connect_client(master_url) as client:
        _tell(client.scale(job, changes, nodes), output)


@user_errors
def resubmit(
    job: JobName,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the job has done.")] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Start a job again that has ended or failed; one that runs gets a new worker."""
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
        bool, typer.Option("--data", help="Remove its positions, its state and its other data as well.")
    ] = False,
    output: Form = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Remove all that the cluster knows of a job that has ended or failed. Logs stay as they are."""
    with connect_client(master_url) as client:
        done = client.forget(job, data)
    typer.echo(f"{done['name']}: {done['reason']}", err=True)
    if output is Output.JSON:
        typer.echo(json.dumps(done))
