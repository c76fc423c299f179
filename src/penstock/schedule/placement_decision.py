"""Decides where tasks run.

Asks a strategy, verifies its matrix against the hard rules, and falls back to the default strategy. Says
for every rejected node why it was rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from penstock.errors import PenstockError, cause_of
from penstock.schedule.custom_strategy import StrategyPendingError
from penstock.schedule.placement_constraints import (
    Usage,
    Violation,
    current_placement,
    find_violations,
    obstacle,
    tasks_to_place,
    usages,
)
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, Cost, Weights, cost
from penstock.schedule.placement_model import OVERLOADED, ClusterSnapshot, Matrix, Task
from penstock.schedule.placement_strategies import Balanced, Strategy
from penstock.schedule.search.placement_state import PlacementState, SnapshotIndex

_REASONS_SHOWN = 3


class Rejections(Mapping[str, Mapping[str, str]]):
    """For each task the nodes that it is not on, each with the reason. Worked out when it is asked for."""

    def __init__(self, snapshot: ClusterSnapshot, matrix: Matrix, weights: Weights) -> None:
        self._snapshot = snapshot
        self._matrix = matrix
        self._weights = weights
        self._known: dict[tuple[object, ...], str] = {}
        """What was summary of tasks that ask for the same."""

    def __getitem__(self, task: str) -> Mapping[str, str]:
        found = self._snapshot.task_named[task]
        place = self._matrix.places.get(task)
        return {
            node: self._reason(found, node) for node in sorted(self._snapshot.node_named) if node != place
        }

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._snapshot.task_named))

    def __len__(self) -> int:
        return len(self._snapshot.task_named)

    def summary(self, task: str) -> str:
        """Say in words why no node can take a task: the most frequent reasons, with how many nodes have each.

        >>> from penstock.schedule.placement_model import Node
        >>> snapshot = ClusterSnapshot((Node("a", 1, 1024), Node("b", 1, 1024)), (Task("t", "job", cpu=2),))
        >>> Rejections(snapshot, Matrix(), Weights()).summary("t")
        'no node can take it: 2 cores asked for, 1 of 1 free (a and 1 more)'
        """
        if not self._snapshot.nodes:
            return "the cluster has no nodes"
        found = self._snapshot.task_named[task]
        shape = (
            *(found.cpu, found.memory, found.nodes, found.apart, found.avoid, found.current),
            *sorted(found.labels.items()),
        )
        if shape not in self._known:
            self._known[shape] = self._told(found)
        return self._known[shape]

    def _told(self, found: Task) -> str:
        where: dict[str, str] = {}
        reasons: Counter[str] = Counter()
        for node in sorted(self._snapshot.nodes, key=lambda node: node.name):
            reason = obstacle(found, node, self._usages[node.name], self._snapshot)
            text = reason[1] if reason else "it could take it now"
            where.setdefault(text, node.name)
            reasons[text] += 1
        parts = [
            f"{text} ({where[text]}{f' and {count - 1} more' if count > 1 else ''})"
            for text, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ]
        more = f"; and {len(parts) - _REASONS_SHOWN} other reasons" if len(parts) > _REASONS_SHOWN else ""
        return f"no node can take it: {'; '.join(parts[:_REASONS_SHOWN])}{more}"

    def _reason(self, task: Task, node: str) -> str:
        reason = obstacle(task, self._snapshot.node_named[node], self._usages[node], self._snapshot)
        if reason is not None:
            return reason[1]
        if task.id not in self._matrix.places:
            return "it could take it now"
        index = self._state.index
        change = self._state.change(index.task_at[task.id], index.node_at[node])
        return f"it could take the task, but the total cost would change by {change:+.4f}"

    @cached_property
    def _usages(self) -> dict[str, Usage]:
        return usages(self._matrix, self._snapshot)

    @cached_property
    def _state(self) -> PlacementState:
        index = SnapshotIndex(self._snapshot)
        state = PlacementState(index, self._weights)
        for task, node in self._matrix.places.items():
            state.put(index.task_at[task], index.node_at[node])
        state.recompute()
        return state


_FAULTS_SHOWN = 5
"""How many violations a refusal names."""


@dataclass(frozen=True)
class Placement:
    """A decision and its explanation."""

    strategy: str
    """The strategy that decided: the requested one, or the default."""
    matrix: Matrix
    cost: Cost
    rejected: Mapping[str, Mapping[str, str]]
    """For each task, why it is not on each of the other nodes."""
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """The tasks that no node can take, with the reason."""
    refused: str = ""
    """Why the answer of the strategy was not used; empty if it was."""
    completed: tuple[str, ...] = ()
    """Tasks that the strategy left out and the default placed."""
    spilled: tuple[str, ...] = ()
    """Tasks on OVERLOADED nodes, because no other could take them."""

    def to_plain(self, explained: Iterable[str] = ()) -> dict[str, Any]:
        """Return what JSON can hold; the rejected nodes of the tasks that shall be explained."""
        return {
            "strategy": self.strategy,
            "matrix": self.matrix.to_plain(),
            "cost": self.cost.to_plain(),
            "rejected": {task: dict(self.rejected[task]) for task in sorted(explained)},
            "unplaced": dict(sorted(self.unplaced.items())),
            "refused": self.refused,
            "completed": list(self.completed),
            "spilled": list(self.spilled),
        }


def decide(
    strategy: Strategy,
    snapshot: ClusterSnapshot,
    *,
    name: str,
    demands: Iterable[Task] = (),
    weights: Weights = DEFAULT_WEIGHTS,
) -> Placement:
    """Place the tasks without a node, and others that are demanded; nothing else moves.

    To rebalance a cluster, demand all its tasks. If one of those that could stay found no node by that, only
    what must be placed is. Raises StrategyPendingError when the strategy has not answered yet.
    """
    must = {task.id: task for task in tasks_to_place(snapshot)}
    wanted = {**must, **{task.id: task for task in demands}}
    asked = tuple(wanted[task] for task in sorted(wanted))
    default = Balanced(weights)
    refused = ""
    try:
        matrix = strategy.place(snapshot, asked)
        refused = _faults(matrix, snapshot, wanted)
    except StrategyPendingError:
        raise
    except PenstockError as error:
        refused = str(error)
    except Exception as error:  # Whatever is wrong with a strategy, the cluster must go on.
        refused = f"it raised {cause_of(error)}"
    if refused:
        matrix, name = default.place(snapshot, asked), "balanced"
    completed: tuple[str, ...] = ()
    spilled: tuple[str, ...] = ()
    missing = _missing(matrix, asked)
    if missing and not isinstance(strategy, Balanced) and not refused:
        matrix, completed = _placed_too(default, snapshot, matrix, missing)
        missing = _missing(matrix, asked)
    if missing and any(snapshot.status(node) == OVERLOADED for node in snapshot.nodes):
        matrix, spilled = _placed_too(default, replace(snapshot, overloaded_above=inf), matrix, missing)
        missing = _missing(matrix, asked)
    evicted = sorted(task.id for task in missing if task.id not in must)
    if evicted:
        whom = ", ".join(evicted[:_FAULTS_SHOWN])
        reason = (
            f"the optional moves would leave the running tasks {whom} without a node, so only tasks that "
            "must move are moved"
        )
        return replace(decide(strategy, snapshot, name=name, weights=weights), refused=reason)
    rejected = Rejections(snapshot, matrix, weights)
    unplaced = {task.id: rejected.summary(task.id) for task in missing}
    terms = cost(matrix, snapshot, weights)
    return Placement(name, matrix, terms, rejected, unplaced, refused, completed, spilled)


def verify(placement: Placement, snapshot: ClusterSnapshot) -> list[Violation]:
    """Return the faults of a decision in a newer snapshot, before it is committed."""
    spilled = frozenset(placement.spilled)
    found = find_violations(placement.matrix, snapshot)
    return [v for v in found if not (v.rule == "status" and v.task in spilled)]


def _faults(matrix: Matrix, snapshot: ClusterSnapshot, wanted: Mapping[str, Task]) -> str:
    """Return the rule that a strategy's matrix breaks; empty if none."""
    if not isinstance(matrix, Matrix):
        return f"it returned {type(matrix).__name__} instead of a Matrix"
    stay = current_placement(snapshot).places
    moved = [task for task in sorted(stay) if task not in wanted and matrix.places.get(task) != stay[task]]
    faults = [f"{task} was not to be moved from {stay[task]}" for task in moved]
    faults += [str(violation) for violation in find_violations(matrix, snapshot)]
    more = f"; and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
    return "; ".join(faults[:_FAULTS_SHOWN]) + more


def _missing(matrix: Matrix, asked: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(task for task in asked if task.id not in matrix.places)


def _placed_too(
    strategy: Strategy, snapshot: ClusterSnapshot, matrix: Matrix, missing: tuple[Task, ...]
) -> tuple[Matrix, tuple[str, ...]]:
    """Place the missing tasks besides the placed ones; return the matrix and the newly placed tasks."""
    lost = {task.id for task in missing}
    tasks = tuple(replace(task, current=None) if task.id in lost else task for task in snapshot.tasks)
    fuller = strategy.place(replace(snapshot, tasks=tasks).placed(matrix.places), missing)
    return fuller, tuple(sorted(task for task in fuller.places if task in lost))
