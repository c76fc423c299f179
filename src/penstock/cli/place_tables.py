"""What ``penstock place`` shows people: the matrix, its cost, why not elsewhere, and where backups go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.painting import format_bytes, make_table
from penstock.schedule.cost import DEFAULT_WEIGHTS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.schedule.deciding import Placement
    from penstock.schedule.describing import Description
    from penstock.schedule.location import LocationDecision

MOST_NODES = 16
MOST_TASKS = 64
"""A larger matrix is shown as a list of tasks and their nodes."""


def placement_tables(
    described: Description, placement: Placement, decision: LocationDecision, asked: str, explained: list[str]
) -> Iterator[RenderableType]:
    """Return what is printed, in this order."""
    if placement.refused:
        yield f"strategy {asked} was not used, {placement.strategy} was: {placement.refused}"
    yield _matrix(described, placement)
    yield _cost(placement)
    if placement.completed:
        yield f"left out by {asked} and placed by the default: {', '.join(placement.completed)}"
    if placement.spilled:
        yield f"on OVERLOADED nodes, because no other can: {', '.join(placement.spilled)}"
    if placement.unplaced:
        rows = sorted(placement.unplaced.items())
        yield make_table("without a node", ("task", "reason"), rows)
    rejected = [
        (task, node, reason) for task in explained for node, reason in placement.rejected[task].items()
    ]
    if rejected:
        yield make_table("why not elsewhere", ("task", "node", "reason"), rejected)
    yield from _backups(decision)


def _matrix(described: Description, placement: Placement) -> RenderableType:
    snapshot, places = described.snapshot, placement.matrix.places
    tasks, nodes = sorted(snapshot.task_named), sorted(snapshot.node_named)
    now = {task.id: task.current for task in snapshot.tasks}
    title = f"placement by {placement.strategy}"
    if len(nodes) > MOST_NODES or len(tasks) > MOST_TASKS:
        rows = [(task, places.get(task, "-"), _moved(now[task], places.get(task))) for task in tasks]
        return make_table(title, ("task", "node", "before"), rows)
    marks = placement.matrix.rows(tasks, nodes)
    cells = [
        (task, *(".X"[mark] for mark in row), _moved(now[task], places.get(task)))
        for task, row in zip(tasks, marks, strict=True)
    ]
    return make_table(title, ("task", *nodes, "before"), cells)


def _moved(before: str | None, after: str | None) -> str:
    return "-" if before is None else ("" if before == after else before)


def _cost(placement: Placement) -> RenderableType:
    cost = placement.cost
    rows = [
        (term, f"{getattr(cost, term):.4f}", f"{weight:g}", f"{weight * getattr(cost, term):.4f}")
        for term, weight in vars(DEFAULT_WEIGHTS).items()
    ]
    rows.append(("total", "", "", f"{cost.total:.4f}"))
    return make_table("what it costs", ("term", "value", "weight", "cost"), rows, "value weight cost")


def _backups(decision: LocationDecision) -> Iterator[RenderableType]:
    if not (decision.choices or decision.unprotected):
        yield "no task that was placed keeps data on its node: there are no backups"
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
    proven = ", proven to be the least" if decision.optimal else ""
    title = f"backups by {decision.method}: {decision.objective.transfer_seconds:.2f} s of transfers{proven}"
    yield make_table(
        title, ("task", "stored on", "redeployed to", "rate", "seconds", "why"), rows, "rate seconds"
    )
    if decision.unprotected:
        left = [(unprotected.task, unprotected.reason) for unprotected in decision.unprotected]
        yield make_table("without a backup", ("task", "reason"), left)
