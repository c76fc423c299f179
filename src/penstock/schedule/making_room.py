"""Making room for a task that fits nowhere: another that may move gives its place up and takes a free one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.schedule.greedy import fullness
from penstock.schedule.index import NOWHERE
from penstock.schedule.state import PlacementState

TRIES = 20_000
"""How many pairs of a task and a node are looked at in all."""


def displace_tasks(state: PlacementState, left: Iterable[int], movable: Sequence[int]) -> list[int]:
    """Place tasks by moving one other task each; return those that found no node even so."""
    search = _Search(state, movable)
    return [task for task in left if not search.place(task)]


class _Search:
    def __init__(self, state: PlacementState, movable: Sequence[int]) -> None:
        self._state = state
        self._tries = TRIES
        self._there: dict[int, set[int]] = {}
        self._hopeless: set[tuple[object, ...]] = set()
        for task in movable:
            if state.place[task] != NOWHERE:
                self._there.setdefault(state.place[task], set()).add(task)

    def place(self, task: int) -> bool:
        """Look for a node that can take the task once another has left it."""
        state, index = self._state, self._state.index
        shape = index.shape(task)
        if self._tries <= 0 or shape in self._hopeless:
            return False
        for node in sorted(index.eligible[task].nodes, key=lambda node: (fullness(state, node), node)):
            for other in sorted(self._there.get(node, ()), key=lambda other: (index.size[other], other)):
                if self._tries <= 0:
                    return False
                if self._gives_way(task, node, other):
                    return True
        self._hopeless.add(shape)
        return False

    def _gives_way(self, task: int, node: int, other: int) -> bool:
        state = self._state
        self._tries -= 1
        state.put(other, NOWHERE)
        if state.fits(task, node):
            state.put(task, node)
            for refuge in state.index.eligible[other].nodes:
                self._tries -= 1
                if refuge != node and state.fits(other, refuge):
                    state.put(other, refuge)
                    self._there[node].remove(other)
                    self._there[node].add(task)
                    self._there.setdefault(refuge, set()).add(other)
                    self._hopeless.clear()
                    return True
            state.put(task, NOWHERE)
        state.put(other, node)
        return False
