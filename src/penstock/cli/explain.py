"""``penstock explain``: how a job would run."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failing import user_errors
from penstock.cli.output import Output
from penstock.graph.loading import load_job


@user_errors
def explain(
    target: Annotated[str, typer.Argument(metavar="FILE[:JOB]", help="The file that defines the job.")],
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Show how a job runs: its regions, where Spark shuffles, where loops are."""
    job = load_job(target)
    job.validate()
    typer.echo(job.to_json() if output is Output.JSON else job.explain())
