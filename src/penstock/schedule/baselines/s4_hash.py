"""S4: all nodes are alike, and the hash of a task's name says which one it is on."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from penstock.schedule.cost import DEFAULT_WEIGHTS
from penstock.schedule.index import SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.state import initial_state


@dataclass(frozen=True)
class S4Hash:
    """The node at the hash of the name; the next one if that cannot take it."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, DEFAULT_WEIGHTS)
        count = len(index.nodes)
        for task in movable:
            start = crc32(index.tasks[task].id.encode())
            for step in range(count):
                node = (start + step) % count
                if state.fits(task, node):
                    state.put(task, node)
                    break
        return state.matrix()
