"""``penstock explain``: how a job would run, or why a submitted one runs where it does."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.cluster_options import MasterUrl, usage
from penstock.cli.failing import user_errors
from penstock.cli.output import Output
from penstock.cli.param_options import Param
from penstock.graph.loading import load_job
from penstock.parameters import params_set_to, read_params


@user_errors
def explain(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:JOB]|JOB", help="The file that defines the job; with --placement its name."
        ),
    ],
    placement: Annotated[
        bool, typer.Option("--placement", help="Say why a submitted job runs where it does.")
    ] = False,
    param: Param = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Show how a job runs: its regions, where Spark shuffles, where loops are.

    With --placement, of a job that was submitted: on which nodes it is, what that costs, and why it is not on
    others.
    """
    if placement:
        from penstock.cli.show_placement import show_placement

        show_placement(target, output, master_url)
        return
    with params_set_to(usage(read_params, param or [])):
        job = load_job(target)
        job.validate()
    typer.echo(job.to_json() if output is Output.JSON else job.explain())
