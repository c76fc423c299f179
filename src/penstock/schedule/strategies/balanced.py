"""The default: little traffic between racks, loads alike, few moves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.schedule.cost import DEFAULT, Weights
from penstock.schedule.greedy import fill, hardest_first, most_important_first
from penstock.schedule.improving import improve, is_small
from penstock.schedule.index import NOWHERE, Index
from penstock.schedule.making_room import make_room
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Snapshot, Task
from penstock.schedule.packing import pack
from penstock.schedule.state import State, begin
from penstock.schedule.whole_jobs import fill_whole


@dataclass(frozen=True)
class Balanced:
    """Place the hardest first, each where it harms least, or whole jobs in one rack, whichever is cheaper;
    then improve by moves and swaps.

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
        if is_small(state, movable) and len(index.rack_counts) > 1 and index.per_rate:
            state, left = self._whole(index, demands, state, left)
        if left:  # Balancing leaves a little room everywhere, and none that is large: pack instead.
            _, packed = begin(index, demands, self.weights)
            unpacked = pack(packed, hardest_first(index, movable))
            if len(unpacked) < len(left):
                state, left = packed, unpacked
            left = make_room(state, left, movable)
        if left and len({index.priority[task] for task in movable}) > 1:
            state, left = self._by_rank(index, demands, state, left)
        state.settle()
        improve(state, movable, self.tries)
        if left:  # What was improved may have made room.
            over = [task for task in movable if state.place[task] == NOWHERE]
            fill(state, most_important_first(index, over))
        return state.matrix()

    def _by_rank(
        self, index: Index, demands: tuple[Task, ...], state: State, left: list[int]
    ) -> tuple[State, list[int]]:
        """Place tasks in the order of their ranks, if that leaves over only less important ones."""
        movable, other = begin(index, demands, self.weights)
        over = pack(other, most_important_first(index, movable))
        over = make_room(other, over, movable)
        ranks, other_ranks = (
            [*sorted(float(index.priority[task]) for task in tasks), inf] for tasks in (left, over)
        )
        return (other, over) if other_ranks > ranks else (state, left)

    def _whole(
        self, index: Index, demands: tuple[Task, ...], state: State, left: list[int]
    ) -> tuple[State, list[int]]:
        """Place whole jobs in one rack, if that is cheaper than what there is and leaves no more over."""
        movable, other = begin(index, demands, self.weights)
        over = fill(other, fill_whole(other, movable))
        state.settle()
        other.settle()
        better = (len(over), other.total()) < (len(left), state.total())
        return (other, over) if better else (state, left)
