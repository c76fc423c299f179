"""``penstock forget``: remove what a cluster knows of a job that is over."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.cluster_options import Form, JobName, MasterUrl, connect_client
from penstock.cli.failing import user_errors
from penstock.cli.output import Output


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
