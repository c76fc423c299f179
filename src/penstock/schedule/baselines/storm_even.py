"""Storm's even scheduler: free slots sorted so that nodes alternate, tasks dealt over them in turn."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT_WEIGHTS
from penstock.schedule.index import NOWHERE, SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.state import PlacementState, initial_state


@dataclass(frozen=True)
class StormEven:
    """A job gets so many slots as it has workers; its tasks are dealt over them, whatever they need.

    A slot holds one worker of one job. When all are taken, more are assumed: Storm would not run the job.
    """

    slots: int = 4
    """On each node, as Storm comes."""
    workers: int = 0
    """Of each job; 0 for as many as it has tasks."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, DEFAULT_WEIGHTS)
        jobs: dict[str, list[int]] = defaultdict(list)
        for task in movable:
            jobs[index.tasks[task].job].append(task)
        workers: dict[int, set[str]] = defaultdict(set)
        for task, node in enumerate(state.place):
            if node != NOWHERE:
                workers[node].add(index.tasks[task].job)
        taken = {node: len(workers[node]) for node in range(len(index.nodes))}
        for job in sorted(jobs):
            chosen = self._alternating(taken)[: self.workers or len(jobs[job])]
            for node in set(chosen):
                taken[node] += chosen.count(node)
            _deal(state, jobs[job], chosen)
        return state.matrix()

    def _alternating(self, taken: dict[int, int]) -> list[int]:
        """Return the free slots as nodes: those with the most free ones first, then one of each in turn."""
        order = sorted(taken, key=lambda node: (taken[node], node))
        free = {node: max(self.slots - taken[node], 0) for node in order}
        if not any(free.values()):
            free = dict.fromkeys(order, self.slots)
        return [node for turn in range(self.slots) for node in order if turn < free[node]]


def _deal(state: PlacementState, tasks: list[int], slots: list[int]) -> None:
    everywhere = list(range(len(state.index.nodes)))
    for turn, task in enumerate(tasks):
        shifted = slots[turn % len(slots) :] + slots[: turn % len(slots)] if slots else []
        for node in (*shifted, *everywhere):
            if state.fits(task, node):
                state.put(task, node)
                break
