"""Few nodes, well filled: what is left over stays free for large tasks, or can be switched off."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT, Weights
from penstock.schedule.greedy import hardest_first
from penstock.schedule.index import Index
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Snapshot, Task
from penstock.schedule.packing import pack
from penstock.schedule.state import begin


@dataclass(frozen=True)
class Packed:
    """Best fit decreasing: the largest first, each on the fullest node that can take it."""

    weights: Weights = DEFAULT

    def place(self, snapshot: Snapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = Index(snapshot)
        movable, state = begin(index, demands, self.weights)
        pack(state, hardest_first(index, movable))
        return state.matrix()
