"""The default: little traffic between racks, loads alike, few moves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.schedule.cost import DEFAULT_WEIGHTS, Weights
from penstock.schedule.greedy import most_constrained_first, most_important_first, place_greedily
from penstock.schedule.improving import improve, is_fully_searched
from penstock.schedule.index import NOWHERE, SnapshotIndex
from penstock.schedule.making_room import displace_tasks
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.packing import pack
from penstock.schedule.state import PlacementState, initial_state
from penstock.schedule.whole_jobs import place_whole_jobs


@dataclass(frozen=True)
class Balanced:
    """Place the hardest first, each where it harms least, or whole jobs in one rack, whichever is cheaper;
    then improve by moves and swaps.

    Only the demanded tasks move, so the loss of a node disturbs nobody but its own tasks.
    """

    weights: Weights = DEFAULT_WEIGHTS
    tries: int = 30_000
    """How many changes the improvement may try."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        left = place_greedily(state, most_constrained_first(index, movable))
        if is_fully_searched(state, movable) and len(index.rack_counts) > 1 and index.per_rate:
            state, left = self._whole(index, demands, state, left)
        if left:  # Balancing leaves a little room everywhere, and none that is large: pack instead.
            _, packed = initial_state(index, demands, self.weights)
            unpacked = pack(packed, most_constrained_first(index, movable))
            if len(unpacked) < len(left):
                state, left = packed, unpacked
            left = displace_tasks(state, left, movable)
        if left and len({index.priority[task] for task in movable}) > 1:
            state, left = self._by_rank(index, demands, state, left)
        state.recompute()
        improve(state, movable, self.tries)
        if left:  # What was improved may have made room.
            over = [task for task in movable if state.place[task] == NOWHERE]
            place_greedily(state, most_important_first(index, over))
        return state.matrix()

    def _by_rank(
        self, index: SnapshotIndex, demands: tuple[Task, ...], state: PlacementState, left: list[int]
    ) -> tuple[PlacementState, list[int]]:
        """Place tasks in the order of their ranks, if that leaves over only less important ones."""
        movable, other = initial_state(index, demands, self.weights)
        over = pack(other, most_important_first(index, movable))
        over = displace_tasks(other, over, movable)
        ranks, other_ranks = (
            [*sorted(float(index.priority[task]) for task in tasks), inf] for tasks in (left, over)
        )
        return (other, over) if other_ranks > ranks else (state, left)

    def _whole(
        self, index: SnapshotIndex, demands: tuple[Task, ...], state: PlacementState, left: list[int]
    ) -> tuple[PlacementState, list[int]]:
        """Place whole jobs in one rack, if that is cheaper than what there is and leaves no more over."""
        movable, other = initial_state(index, demands, self.weights)
        over = place_greedily(other, place_whole_jobs(other, movable))
        state.recompute()
        other.recompute()
        better = (len(over), other.total()) < (len(left), state.total())
        return (other, over) if better else (state, left)
