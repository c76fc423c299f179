"""Tables of a placement, for ``penstock place`` and ``penstock explain --placement``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.table_output import make_table

if TYPE_CHECKING:
    from rich.table import Table

_MOST_NODES = 16
_MOST_TASKS = 64
"""Maximum size of a matrix that is shown; a larger one is shown as a list of tasks and nodes."""
_TERMS = {
    "imbalance": "imbalance of the nodes' loads (S)",
    "cross_node": "traffic between nodes, as a share of all",
    "cross_rack": "traffic between racks, as a share of all",
    "moves": "moved tasks, as a share of all",
    "fit": "imbalance between cores and memory",
}


def allocation_table(
    title: str,
    places: Mapping[str, str],
    tasks: Iterable[str],
    nodes: Sequence[str],
    *,
    before: Mapping[str, str | None] | None = None,
) -> Table:
    """Return the allocation matrix: a row for each task, with a mark in the column of its node.

    ``before`` adds a column with the node that a task leaves; it is empty if the task stays, and ``-`` if the
    task was not placed before.
    """
    tasks = sorted(tasks)
    large = len(nodes) > _MOST_NODES or len(tasks) > _MOST_TASKS
    rows = []
    for task in tasks:
        place = places.get(task)
        cells = [place or "-"] if large else ["X" if place == node else "." for node in nodes]
        rows.append([task, *cells, *([_previous_node(before[task], place)] if before else [])])
    headings = ["task", *(["node"] if large else nodes), *(["before"] if before else [])]
    return make_table(title, headings, rows)


def _previous_node(before: str | None, after: str | None) -> str:
    return "-" if before is None else ("" if before == after else before)


def cost_table(cost: Mapping[str, float], weights: Mapping[str, float]) -> Table:
    """Return the terms of a cost with their weights, and the total."""
    rows = [
        (term, meaning, f"{cost[term]:.4f}", f"{weights[term]:g}", f"{cost[term] * weights[term]:.4f}")
        for term, meaning in _TERMS.items()
    ]
    rows.append(("total", "", "", "", f"{cost['total']:.4f}"))
    return make_table(
        "cost of the whole cluster", ("term", "meaning", "value", "weight", "cost"), rows, "value weight cost"
    )


def rejection_table(rejected: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return why tasks are not on other nodes."""
    rows = [
        (task, node, reason)
        for task, reasons in sorted(rejected.items())
        for node, reason in sorted(reasons.items())
    ]
    return make_table("why not on other nodes", ("task", "node", "reason"), rows)
