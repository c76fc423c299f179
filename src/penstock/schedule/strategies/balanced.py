"""The default: loads alike, little traffic, few moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT, Weights
from penstock.schedule.greedy import fill, hardest_first
from penstock.schedule.improving import improve
from penstock.schedule.index import NOWHERE, Index
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Snapshot, Task
from penstock.schedule.state import State


@dataclass(frozen=True)
class Balanced:
    """Place the hardest first, each where it harms least; then improve by moves and swaps.

    Only the demanded tasks move, so the loss of a node disturbs nobody but its own tasks.
    """

    weights: Weights = DEFAULT
    tries: int = 30_000
    """How many changes the improvement may try."""

    def place(self, snapshot: Snapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = Index(snapshot)
        movable, state = begin(index, demands, self.weights)
        fill(state, hardest_first(index, movable))
        state.settle()
        improve(state, movable, self.tries)
        return state.matrix()


def begin(index: Index, demands: Iterable[Task], weights: Weights) -> tuple[list[int], State]:
    """Return the positions of the demanded tasks, and the state in which all others are where they are."""
    movable = sorted({index.task_at[task.id] for task in demands if task.id in index.task_at})
    wanted = set(movable)
    keep = (task for task, node in enumerate(index.current) if node != NOWHERE and task not in wanted)
    return movable, State(index, weights, keep=keep)
