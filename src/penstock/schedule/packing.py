"""Best fit decreasing: each task on the node with the least room that can take it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from penstock.schedule.index import NOWHERE
from penstock.schedule.state import PlacementState


def pack(state: PlacementState, order: Iterable[int]) -> list[int]:
    """Place each task on the fullest node that can take it; return those that found none."""
    rooms = Rooms(state)
    left = []
    hopeless: set[tuple[object, ...]] = set()
    for task in order:
        shape = state.index.shape(task)
        node = NOWHERE if shape in hopeless else rooms.tightest(task)
        if node == NOWHERE:
            hopeless.add(shape)
            left.append(task)
        else:
            rooms.put(task, node)
    return left


class Rooms:
    """The nodes by what is free on them, least first."""

    def __init__(self, state: PlacementState) -> None:
        index = state.index
        self._state = state
        self._cores = max(index.cores, default=1.0) or 1.0
        self._memory = max(index.memory, default=1.0) or 1.0
        self._free = [self._room(node) for node in range(len(index.nodes))]
        self._order = sorted((free, node) for node, free in enumerate(self._free))

    def tightest(self, task: int) -> int:
        """Return the node with the least room of those that can take a task, or NOWHERE."""
        state = self._state
        nodes = state.index.eligible[task].nodes
        if len(nodes) < 16:
            able = [node for node in nodes if state.fits(task, node)]
            return min(able, key=lambda node: (self._free[node], node), default=NOWHERE)
        need = max(state.index.cpu[task] / self._cores, state.index.bytes[task] / self._memory)
        start = bisect_left(self._order, (need, NOWHERE))
        for _, node in self._order[start:]:
            if state.fits(task, node):
                return node
        # Where one resource is scarcer than what the task needs of the other, it may fit all the same.
        for _, node in reversed(self._order[:start]):
            if state.fits(task, node):
                return node
        return NOWHERE

    def put(self, task: int, node: int) -> None:
        """Place a task."""
        del self._order[bisect_left(self._order, (self._free[node], node))]
        self._state.put(task, node)
        self._free[node] = self._room(node)
        insort(self._order, (self._free[node], node))

    def _room(self, node: int) -> float:
        """Return the scarcer of what is free, measured by the largest node."""
        index, state = self._state.index, self._state
        return min(
            (index.cores[node] - state.cpu[node]) / self._cores,
            (index.memory[node] - state.memory[node]) / self._memory,
        )
