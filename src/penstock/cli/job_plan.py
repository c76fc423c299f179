"""``penstock explain``.

Print how a job would run, or with ``--placement`` why a submitted job runs where it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import MasterUrl, Output, Param, connect_client, usage
from penstock.cli.placement_tables import allocation_table, cost_table, rejection_table
from penstock.cli.table_output import format_bytes, make_table, print_view
from penstock.graph.job_loader import load_job
from penstock.parameters import params_set_to, read_params

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_placement(job: str, output: Output, master_url: str | None) -> None:
    """Print the placement of a job that was submitted."""
    with connect_client(master_url) as client:
        print_view(lambda: client.placement(job), placement_report, output, watch=False)


def placement_report(found: Mapping[str, Any], now: float) -> RenderableType:  # noqa: ARG001
    """Return the placement of a job as tables."""
    from rich.console import Group
    from rich.text import Text

    notes = [Text(part) for part in (_unplaced(found), _backup(found)) if part]
    names = [node["name"] for node in found["nodes"]]
    return Group(
        Text(_strategy(found)),
        allocation_table("allocation", found["matrix"], found["rejected"], names),
        _nodes(found["nodes"]),
        cost_table(found["cost"], found["weights"]),
        rejection_table(found["rejected"]),
        *notes,
    )


def _strategy(found: Mapping[str, Any]) -> str:
    text = f"{found['job']}: placed by {found['strategy']}"
    if found["refused"]:
        text += f", because {found['asked_for']} was refused: {found['refused']}"
    return text


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> RenderableType:
    rows = [
        (
            node["name"],
            node["status"],
            f"{node['cores_used']:g} of {node['cores']:g}",
            f"{format_bytes(node['memory_used'])} of {format_bytes(node['memory'])}",
        )
        for node in nodes
    ]
    return make_table("nodes", ("node", "status", "cores used", "memory used"), rows)


def _unplaced(found: Mapping[str, Any]) -> str:
    return "\n".join(f"{task} has no node: {reason}" for task, reason in sorted(found["unplaced"].items()))


def _backup(found: Mapping[str, Any]) -> str:
    location, kept = found["location"], found["kept"]
    lines = []
    if location is not None:
        lines.append(
            f"backup on {location['store']}, runs on {location['redeploy']} if its node is lost: "
            f"{location['reason']}"
        )
        if location.get("assumed"):
            lines.append(f"assumed: {location['assumed']}")
    if kept is not None and kept["store"]:
        lines.append(
            f"last complete snapshot: number {kept['number']} on {kept['store']}, up to batch "
            f"{kept['batch']}, {format_bytes(kept['bytes'])}"
        )
    elif kept is not None:
        lines.append(f"its data is on {kept['origin']} only: no backup is complete yet")
    return "\n".join(lines)


@user_errors
def explain(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:JOB]|JOB", help="The file that defines the job; with --placement its name."
        ),
    ],
    placement: Annotated[
        bool, typer.Option("--placement", help="Explain the placement of a submitted job.")
    ] = False,
    param: Param = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
    master_url: MasterUrl = None,
) -> None:
    """Show how a job runs: its regions, shuffles and loops.

    With --placement, show the placement of a submitted job: its nodes, the cost, and why other nodes were not
    chosen.
    """
    if placement:
        show_placement(target, output, master_url)
        return
    with params_set_to(usage(read_params, param or [])):
        job = load_job(target)
        job.validate()
    typer.echo(job.to_json() if output is Output.JSON else job.explain())
