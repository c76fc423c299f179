"""``penstock place``: decides for a described cluster where tasks run and where their backups go."""

from __future__ import annotations

import json
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.exit_codes import UNKNOWN
from penstock.cli.failing import fail, user_errors
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.schedule.deciding import Placement
    from penstock.schedule.describing import Description
    from penstock.schedule.location import LocationDecision

STRATEGY_SECONDS = 5.0
SOLVER_SECONDS = 60.0
FEW = 64
"""Up to so many pairs of a task and a node, all are explained."""


class Method(StrEnum):
    """The ways to decide where backups go."""

    IMPROVED = "improved"
    ALGORITHM1 = "algorithm1"
    CBC = "cbc"
    HIGHS = "highs"


@user_errors
def place(
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The cluster; - reads stdin.")],
    strategy: Annotated[
        str,
        typer.Option(metavar="NAME", help="A strategy of Penstock's, or MODULE:CLASS in this folder."),
    ] = "balanced",
    method: Annotated[
        Method, typer.Option(help="How to decide where backups go; cbc and highs are exact.")
    ] = Method.IMPROVED,
    failures: Annotated[int, typer.Option(min=1, help="How many nodes may be lost at once.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, help="For a strategy of your own (5 if not given) or a solver (60)."),
    ] = None,
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Move tasks that run, too.")] = False,
    explain: Annotated[
        list[str] | None,
        typer.Option("--explain", metavar="TASK", help="Say why it is not on other nodes; repeatable."),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Decide for a described cluster where tasks run and where their backups go. Nothing is started."""
    from penstock.daemons.custom_strategy import strategy_named
    from penstock.schedule.deciding import decide
    from penstock.schedule.describing import parse_cluster_file
    from penstock.schedule.protecting import described_problem, protect

    described = parse_cluster_file(_text(file))
    snapshot = described.snapshot
    explained = _explained(described, explain)
    chosen = strategy_named(strategy, Path.cwd(), seconds or STRATEGY_SECONDS)
    placement = decide(chosen, snapshot, name=strategy, demands=snapshot.tasks if rebalance else ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PuLP tells its users what its next version will do.
        decision = protect(
            described_problem(described, placement.matrix, failures), method.value, seconds or SOLVER_SECONDS
        )
    if output is Output.JSON:
        typer.echo(json.dumps(to_plain(described, placement, decision, failures, explained)))
        return
    from penstock.cli.painting import make_console
    from penstock.cli.place_tables import placement_tables

    console = make_console()
    for picture in placement_tables(described, placement, decision, strategy, explained):
        console.print(picture)


def to_plain(
    described: Description,
    placement: Placement,
    decision: LocationDecision,
    failures: int,
    explained: list[str],
) -> dict[str, Any]:
    """Return both decisions as JSON can hold them."""
    from dataclasses import asdict

    before = {task.id: task.current for task in described.snapshot.tasks}
    moves = {
        task: {"from": origin, "to": target}
        for task, (origin, target) in placement.matrix.moved_from(before).items()
        if origin is not None
    }
    return {
        "placement": {**placement.to_plain(explained), "moves": moves},
        "backup": {
            "method": decision.method,
            "failures": failures,
            "optimal": decision.optimal,
            "objective": {**asdict(decision.objective), "total": decision.objective.total},
            "choices": [asdict(choice) for choice in decision.choices],
            "unprotected": {left.task: left.reason for left in decision.unprotected},
        },
    }


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        fail(f"{file} is no text in UTF-8")


def _explained(described: Description, wanted: list[str] | None) -> list[str]:
    """Return the tasks whose rejected nodes are told: those asked for, else all of a small cluster."""
    snapshot = described.snapshot
    for task in wanted or ():
        if task not in snapshot.task_named:
            fail(f"there is no task {task!r} in the file", UNKNOWN)
    if wanted:
        return sorted(set(wanted))
    return sorted(snapshot.task_named) if len(snapshot.tasks) * len(snapshot.nodes) <= FEW else []
