"""Few nodes, well filled: what is left over stays free for large tasks, or can be switched off."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT_WEIGHTS, Weights
from penstock.schedule.greedy import most_constrained_first
from penstock.schedule.index import SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.packing import pack
from penstock.schedule.state import initial_state


@dataclass(frozen=True)
class Packed:
    """Best fit decreasing: the largest first, each on the fullest node that can take it."""

    weights: Weights = DEFAULT_WEIGHTS

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        pack(state, most_constrained_first(index, movable))
        return state.matrix()
