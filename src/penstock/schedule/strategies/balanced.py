"""The default: loads alike, little traffic, few moves."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT, Weights
from penstock.schedule.greedy import fill, hardest_first
from penstock.schedule.improving import improve
from penstock.schedule.index import NOWHERE, Index
from penstock.schedule.making_room import make_room
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Snapshot, Task
from penstock.schedule.packing import pack
from penstock.schedule.state import begin


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
        left = fill(state, hardest_first(index, movable))
        if left:  # Balancing leaves a little room everywhere, and none that is large: pack instead.
            _, packed = begin(index, demands, self.weights)
            unpacked = pack(packed, hardest_first(index, movable))
            if len(unpacked) < len(left):
                state, left = packed, unpacked
            left = make_room(state, left, movable)
        state.settle()
        improve(state, movable, self.tries)
        if left:  # What was improved may have made room.
            fill(state, hardest_first(index, [task for task in movable if state.place[task] == NOWHERE]))
        return state.matrix()
