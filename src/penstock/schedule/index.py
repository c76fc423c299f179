"""A snapshot in numbers: nodes and tasks by position, sorted by name: quick, and the same each time."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.cost import scarcity
from penstock.schedule.model import NORMAL, ClusterSnapshot, Task

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Eligible:
    """The nodes that may run tasks of one kind, by labels, pins and replicas. There is one for each kind."""

    nodes: tuple[int, ...]
    members: frozenset[int]


class SnapshotIndex:
    """The positions and figures of a snapshot. It is never changed after it is made."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.nodes = sorted(snapshot.nodes, key=lambda node: node.name)
        self.tasks = sorted(snapshot.tasks, key=lambda task: task.id)
        self.node_at = {node.name: position for position, node in enumerate(self.nodes)}
        self.task_at = {task.id: position for position, task in enumerate(self.tasks)}
        self.cores = [float(node.cores) for node in self.nodes]
        self.memory = [float(node.memory) for node in self.nodes]
        self.per_core = [1.0 / max(node.cores, 1e-9) for node in self.nodes]
        self.per_byte = [1.0 / max(node.memory, 1) for node in self.nodes]
        self.normal = [snapshot.status(node) == NORMAL for node in self.nodes]
        self.alike = len({(node.cores, node.memory) for node in self.nodes}) <= 1
        """Whether all nodes have the same size: then no move changes the means of the loads."""
        self._racks()
        self.cpu = [float(task.cpu) for task in self.tasks]
        self.bytes = [float(task.memory) for task in self.tasks]
        self.apart = [task.apart for task in self.tasks]
        self.priority = [task.rank for task in self.tasks]
        at = self.node_at
        self.current = [NOWHERE if t.current is None else at.get(t.current, NOWHERE) for t in self.tasks]
        self.running = max(sum(1 for place in self.current if place != NOWHERE), 1)
        cores, memory = max(sum(self.cores), 1e-9), max(sum(self.memory), 1.0)
        self.size = [max(c / cores, m / memory) for c, m in zip(self.cpu, self.bytes, strict=True)]
        """The larger of a task's shares of the whole cluster's cores and of its memory."""
        self._eligible()
        self._traffic()

    def _racks(self) -> None:
        names = sorted({node.rack for node in self.nodes})
        number = {name: position for position, name in enumerate(names)}
        counts = scarcity(self.snapshot)
        self.rack = [number[node.rack] for node in self.nodes]
        self.rack_counts = [counts.get(name, 1.0) for name in names]

    def _eligible(self) -> None:
        kinds: dict[tuple[object, ...], Eligible] = {}
        self.eligible: list[Eligible] = []
        for task in self.tasks:
            key: tuple[object, ...] = (task.nodes, task.avoid)
            if task.labels:
                key = (*key, tuple(sorted(task.labels.items())))
            found = kinds.get(key)
            if found is None:
                found = kinds[key] = self._able(task)
            self.eligible.append(found)

    def _able(self, task: Task) -> Eligible:
        pinned, avoided = frozenset(task.nodes), frozenset(task.avoid)
        able = tuple(
            position
            for position, node in enumerate(self.nodes)
            if (not pinned or node.name in pinned)
            and node.name not in avoided
            and all(node.labels.get(label) == value for label, value in task.labels.items())
        )
        return Eligible(able, frozenset(able))

    def _traffic(self) -> None:
        self.neighbours: list[list[tuple[int, float]]] = [[] for _ in self.tasks]
        total = 0.0
        at = self.task_at
        # Sums of the same rates differ by their order, and a tie is then decided by that.
        for pair in sorted(self.snapshot.traffic, key=lambda pair: (pair.first, pair.second, pair.rate)):
            total += pair.rate
            first, second = at.get(pair.first), at.get(pair.second)
            if first is not None and second is not None and first != second:
                self.neighbours[first].append((second, pair.rate))
                self.neighbours[second].append((first, pair.rate))
        self.per_rate = 1.0 / total if total > 0 else 0.0

    def shape(self, task: int) -> tuple[object, ...]:
        """Return what decides where a task fits: where one of a shape finds no room, no other does."""
        current = self.current[task]
        kept = current if current != NOWHERE and not self.normal[current] else NOWHERE
        return (id(self.eligible[task]), self.cpu[task], self.bytes[task], self.apart[task], kept)
