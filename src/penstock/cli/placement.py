"""``penstock place``: decide where the tasks and backups of a described cluster go, and print the decision.

Nothing is started.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import UNKNOWN, fail, user_errors
from penstock.cli.command_options import Output
from penstock.cli.placement_tables import allocation_table, cost_table, rejection_table
from penstock.cli.table_output import format_bytes, make_table
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.schedule.backup_location import LocationDecision
    from penstock.schedule.cluster_file import Description
    from penstock.schedule.placement_decision import Placement


def placement_tables(
    described: Description, placement: Placement, decision: LocationDecision, asked: str, explained: list[str]
) -> Iterator[RenderableType]:
    """Yield the tables and lines of the output in order."""
    if placement.refused:
        yield f"strategy {asked} was not used, {placement.strategy} was: {placement.refused}"
    snapshot = described.snapshot
    yield allocation_table(
        f"placement by {placement.strategy}",
        placement.matrix.places,
        snapshot.task_named,
        sorted(snapshot.node_named),
        before={task.id: task.current for task in snapshot.tasks},
    )
    yield cost_table(placement.cost.to_plain(), vars(DEFAULT_WEIGHTS))
    if placement.completed:
        yield f"left out by {asked} and placed by the default: {', '.join(placement.completed)}"
    if placement.spilled:
        yield f"on OVERLOADED nodes, because no other node can take them: {', '.join(placement.spilled)}"
    if placement.unplaced:
        rows = sorted(placement.unplaced.items())
        yield make_table("without a node", ("task", "reason"), rows)
    if any(placement.rejected[task] for task in explained):
        yield rejection_table({task: placement.rejected[task] for task in explained})
    yield from _backups(decision)


def _backups(decision: LocationDecision) -> Iterator[RenderableType]:
    if not (decision.choices or decision.unprotected):
        yield "no placed task keeps data on its node, so there are no backups"
        return
    rows = [
        (
            choice.task,
            choice.store,
            choice.redeploy,
            f"{format_bytes(choice.rate)}/s" if choice.rate else "-",
            f"{choice.seconds:.2f}",
            choice.reason,
        )
        for choice in decision.choices
    ]
    proven = ", proven optimal" if decision.optimal else ""
    title = f"backups by {decision.method}: {decision.objective.transfer_seconds:.2f} s of transfers{proven}"
    yield make_table(
        title, ("task", "stored on", "redeployed to", "rate", "seconds", "why"), rows, "rate seconds"
    )
    if decision.unprotected:
        left = [(unprotected.task, unprotected.reason) for unprotected in decision.unprotected]
        yield make_table("without a backup", ("task", "reason"), left)


STRATEGY_SECONDS = 5.0
SOLVER_SECONDS = 60.0
FEW = 64
"""Explain all tasks by default if there are at most this many pairs of a task and a node."""


class Method(StrEnum):
    """The methods that decide where backups go."""

    IMPROVED = "improved"
    ALGORITHM1 = "algorithm1"
    CBC = "cbc"
    HIGHS = "highs"


@user_errors
def place(
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The file that describes the cluster; - reads standard input.",
        ),
    ],
    strategy: Annotated[
        str,
        typer.Option(metavar="NAME", help="A built-in strategy, or MODULE:CLASS in this folder."),
    ] = "balanced",
    method: Annotated[
        Method, typer.Option(help="The method that decides where backups go; cbc and highs are exact.")
    ] = Method.IMPROVED,
    failures: Annotated[int, typer.Option(min=1, help="Number of nodes that may be lost at once.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Time limit of a custom strategy (default 5) or of a solver (default 60)."
        ),
    ] = None,
    rebalance: Annotated[
        bool,
        typer.Option(
            "--rebalance",
            help="Also move running tasks; otherwise only tasks without a permitted node are placed.",
        ),
    ] = False,
    explain: Annotated[
        list[str] | None,
        typer.Option(
            "--explain",
            metavar="TASK",
            help="Explain why this task is not on other nodes; repeatable. By default all tasks of a small "
            "cluster.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Decide where the tasks of a described cluster run and where their backups go. Nothing is started."""
    from penstock.master.strategy_runner import strategy_named
    from penstock.schedule.backup_location.location_methods import described_problem, protect
    from penstock.schedule.cluster_file import parse_cluster_file
    from penstock.schedule.placement_decision import decide

    described = parse_cluster_file(_text(file))
    snapshot = described.snapshot
    explained = _tasks_to_explain(described, explain)
    chosen = strategy_named(strategy, Path.cwd(), seconds or STRATEGY_SECONDS)
    placement = decide(chosen, snapshot, name=strategy, demands=snapshot.tasks if rebalance else ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PuLP warns about changes in its next version.
        decision = protect(
            described_problem(described, placement.matrix, failures), method.value, seconds or SOLVER_SECONDS
        )
    if output is Output.JSON:
        typer.echo(json.dumps(to_plain(described, placement, decision, failures, explained)))
        return
    from penstock.cli.table_output import make_console

    console = make_console()
    for part in placement_tables(described, placement, decision, strategy, explained):
        console.print(part)


def to_plain(
    described: Description,
    placement: Placement,
    decision: LocationDecision,
    failures: int,
    explained: list[str],
) -> dict[str, Any]:
    """Return both decisions as plain data for JSON."""
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
        fail(f"{file} is not UTF-8 text")


def _tasks_to_explain(described: Description, wanted: list[str] | None) -> list[str]:
    """Return the tasks to explain: the requested ones, else all tasks of a small cluster."""
    snapshot = described.snapshot
    for task in wanted or ():
        if task not in snapshot.task_named:
            fail(f"there is no task {task!r} in the file", UNKNOWN)
    if wanted:
        return sorted(set(wanted))
    return sorted(snapshot.task_named) if len(snapshot.tasks) * len(snapshot.nodes) <= FEW else []
