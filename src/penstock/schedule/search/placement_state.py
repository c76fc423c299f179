"""A placement in progress, in numbers.

The index of a snapshot (nodes and tasks by position, sorted by name), and the state that counts free
capacity and cost move by move. It must give the same cost as ``placement_cost`` and the same answers as
``placement_constraints``; tests compare them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, sqrt
from operator import truediv

from penstock.schedule.placement_constraints import TOLERANCE
from penstock.schedule.placement_cost import Weights, scarcity
from penstock.schedule.placement_model import NORMAL, ClusterSnapshot, Matrix, Task

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
        """Return all that decides where a task fits: of tasks with the same key, all fit or none."""
        current = self.current[task]
        kept = current if current != NOWHERE and not self.normal[current] else NOWHERE
        return (id(self.eligible[task]), self.cpu[task], self.bytes[task], self.apart[task], kept)


LEAST = 1e-12
"""A gain that is smaller is an error of arithmetic."""
CENTRED = 48
"""With more nodes of different sizes, a move counts the shift of the means by its slope until ``confirm``."""


class PlacementState:
    """Tasks on nodes, by position. ``put`` fills it quickly, ``recompute`` counts, and ``move`` counts on."""

    def __init__(self, index: SnapshotIndex, weights: Weights, *, keep: Iterable[int] = ()) -> None:
        self.index = index
        self.weights = weights
        self.place = [NOWHERE] * len(index.tasks)
        self.cpu = [0.0] * len(index.nodes)
        self.memory = [0.0] * len(index.nodes)
        self._count = max(len(index.nodes), 1)
        self.groups: Counter[tuple[str, int]] = Counter()
        self.lazy = not index.alike and len(index.nodes) > CENTRED
        for task in keep:
            self.put(task, index.current[task])

    def fits(self, task: int, node: int) -> bool:
        """Say whether a node can take a task besides what is there; the same rules as in ``constraints``."""
        index = self.index
        return (
            index.cores[node] - self.cpu[node] + TOLERANCE / 2 >= index.cpu[task]
            and index.memory[node] - self.memory[node] >= index.bytes[task]
            and (index.normal[node] or index.current[task] == node)
            and node in index.eligible[task].members
            and not (index.apart[task] and self.groups[index.apart[task], node])
        )

    def put(self, task: int, node: int) -> None:
        """Place a task without counting the cost; ``NOWHERE`` takes it away."""
        index, before = self.index, self.place[task]
        cpu, size, group = index.cpu[task], index.bytes[task], index.apart[task]
        if before != NOWHERE:
            self.cpu[before] -= cpu
            self.memory[before] -= size
            if group:
                self.groups[group, before] -= 1
        if node != NOWHERE:
            self.cpu[node] += cpu
            self.memory[node] += size
            if group:
                self.groups[group, node] += 1
        self.place[task] = node

    def recompute(self) -> None:
        """Count every term of the cost from nothing."""
        index = self.index
        self.share_cpu = [used * per for used, per in zip(self.cpu, index.per_core, strict=True)]
        self.share_memory = [used * per for used, per in zip(self.memory, index.per_byte, strict=True)]
        self._recentre()
        pairs = zip(self.share_cpu, self.share_memory, strict=True)
        self.unfit = sum(abs(cpu - memory) for cpu, memory in pairs)
        self.crossing_nodes = self.crossing_racks = 0.0
        for task, node in enumerate(self.place):
            if index.neighbours[task]:
                nodes, racks = self.crossing(task, node)
                self.crossing_nodes += nodes / 2
                self.crossing_racks += racks / 2
        self.moved = sum(
            1 for now, before in zip(self.place, index.current, strict=True) if before not in (NOWHERE, now)
        )

    def move(self, task: int, node: int) -> None:
        """Move a placed task and update the cost. The caller has checked that it fits."""
        index, before = self.index, self.place[task]
        if index.neighbours[task]:
            nodes, racks = self._crossing_change(task, node)
            self.crossing_nodes += nodes
            self.crossing_racks += racks
        self.put(task, node)
        current = index.current[task]
        if current != NOWHERE:
            self.moved += (node != current) - (before != current)
        for changed in (before, node):
            self.unfit -= abs(self.share_cpu[changed] - self.share_memory[changed])
            self.share_cpu[changed] = self.cpu[changed] * index.per_core[changed]
            self.share_memory[changed] = self.memory[changed] * index.per_byte[changed]
            self.unfit += abs(self.share_cpu[changed] - self.share_memory[changed])
        if index.alike or self.lazy:
            for changed in (before, node):
                self.spread -= self.distance[changed]
                self.distance[changed] = self._distance(self.share_cpu[changed], self.share_memory[changed])
                self.spread += self.distance[changed]
            if self.lazy:
                shift_cpu = index.per_core[node] - index.per_core[before]
                shift_memory = index.per_byte[node] - index.per_byte[before]
                self.slope -= self._pull_cpu * index.cpu[task] * shift_cpu
                self.slope -= self._pull_memory * index.bytes[task] * shift_memory
        else:
            self._recentre()

    def confirm(self, before: float) -> bool:
        """Say whether the total is less than it was before, counted exactly."""
        if self.lazy:
            self._recentre()
        return self.total() < before - LEAST

    def change(self, task: int, node: int) -> float:
        """Return by how much the total would change if a placed task moved; nothing is moved."""
        index, before = self.index, self.place[task]
        if before == node:
            return 0.0
        nodes, racks = self._crossing_change(task, node) if index.neighbours[task] else (0.0, 0.0)
        cpu, size = index.cpu[task], index.bytes[task]
        moved = self._moved_change(task, node)
        return self._shifted(before, node, cpu, size, nodes, racks, moved) - self.total()

    def change_of_swap(self, first: int, second: int) -> float:
        """Return by how much the total would change if two tasks changed places; nothing is moved."""
        index, one, two = self.index, self.place[first], self.place[second]
        nodes = racks = 0.0
        if index.neighbours[first] or index.neighbours[second]:
            nodes, racks = self._crossing_change(first, two)
            self.place[first] = two  # The two may be neighbours of each other.
            more_nodes, more_racks = self._crossing_change(second, one)
            self.place[first] = one
            nodes, racks = nodes + more_nodes, racks + more_racks
        cpu, size = index.cpu[first] - index.cpu[second], index.bytes[first] - index.bytes[second]
        moved = self._moved_change(first, two) + self._moved_change(second, one)
        return self._shifted(one, two, cpu, size, nodes, racks, moved) - self.total()

    def total(self) -> float:
        """Return the weighted cost."""
        return self._weighed(
            self.spread + self.slope, self.crossing_nodes, self.crossing_racks, self.moved, self.unfit
        )

    def _weighed(self, spread: float, nodes: float, racks: float, moved: int, unfit: float) -> float:
        index, weights = self.index, self.weights
        count = self._count
        return (
            weights.imbalance * spread / (2 * count)
            + weights.cross_node * nodes * index.per_rate
            + weights.cross_rack * racks * index.per_rate
            + weights.moves * moved / index.running
            + weights.fit * unfit / count
        )

    def _shifted(
        self, one: int, two: int, cpu: float, size: float, nodes: float, racks: float, moved: int
    ) -> float:
        """Return what the total would be with a load on another node, and with other changes by moves."""
        index, shares_cpu, shares_memory = self.index, self.share_cpu, self.share_memory
        cpu_one, memory_one, cpu_two, memory_two = (
            shares_cpu[one],
            shares_memory[one],
            shares_cpu[two],
            shares_memory[two],
        )
        new_cpu_one = (self.cpu[one] - cpu) * index.per_core[one]
        new_memory_one = (self.memory[one] - size) * index.per_byte[one]
        new_cpu_two = (self.cpu[two] + cpu) * index.per_core[two]
        new_memory_two = (self.memory[two] + size) * index.per_byte[two]
        unfit = self.unfit - abs(cpu_one - memory_one) + abs(new_cpu_one - new_memory_one)
        unfit = unfit - abs(cpu_two - memory_two) + abs(new_cpu_two - new_memory_two)
        if index.alike or self.lazy:
            spread = self.spread - self.distance[one] - self.distance[two]
            spread += self._distance(new_cpu_one, new_memory_one)
            spread += self._distance(new_cpu_two, new_memory_two)
            if self.lazy:
                spread += self.slope
                spread -= self._pull_cpu * cpu * (index.per_core[two] - index.per_core[one])
                spread -= self._pull_memory * size * (index.per_byte[two] - index.per_byte[one])
        else:
            shares_cpu[one], shares_memory[one] = new_cpu_one, new_memory_one
            shares_cpu[two], shares_memory[two] = new_cpu_two, new_memory_two
            mean_cpu, mean_memory = sum(shares_cpu) / self._count, sum(shares_memory) / self._count
            spread = sum(
                map(hypot, [s - mean_cpu for s in shares_cpu], [s - mean_memory for s in shares_memory])
            )
            shares_cpu[one], shares_memory[one] = cpu_one, memory_one
            shares_cpu[two], shares_memory[two] = cpu_two, memory_two
        return self._weighed(
            spread, self.crossing_nodes + nodes, self.crossing_racks + racks, self.moved + moved, unfit
        )

    def _moved_change(self, task: int, node: int) -> int:
        current = self.index.current[task]
        return 0 if current == NOWHERE else (node != current) - (self.place[task] != current)

    def _crossing_change(self, task: int, node: int) -> tuple[float, float]:
        """Return by how much :meth:`crossing` would change if a placed task moved: in one pass, not two."""
        index, place, before = self.index, self.place, self.place[task]
        rack, counts = index.rack, index.rack_counts
        was, here = rack[before], rack[node]
        count_was, count_here = counts[was], counts[here]
        nodes_before = racks_before = nodes = racks = 0.0
        for other, rate in index.neighbours[task]:
            there = place[other]
            if there == NOWHERE:
                continue
            far = rack[there]
            count = counts[far]
            if there != before:
                nodes_before += rate
                if far != was:
                    racks_before += rate * (count if count > count_was else count_was)
            if there != node:
                nodes += rate
                if far != here:
                    racks += rate * (count if count > count_here else count_here)
        return nodes - nodes_before, racks - racks_before

    def matrix(self) -> Matrix:
        """Return what is placed."""
        index = self.index
        return Matrix(
            {
                index.tasks[task].id: index.nodes[node].name
                for task, node in enumerate(self.place)
                if node != NOWHERE
            }
        )

    def _recentre(self) -> None:
        count = self._count
        mean_cpu = self.mean_cpu = sum(self.share_cpu) / count
        mean_memory = self.mean_memory = sum(self.share_memory) / count
        off_cpu = [share - mean_cpu for share in self.share_cpu]
        off_memory = [share - mean_memory for share in self.share_memory]
        self.distance = list(map(hypot, off_cpu, off_memory))
        self.spread = sum(self.distance)
        self.slope = 0.0
        if self.lazy:
            lengths = [distance or 1.0 for distance in self.distance]
            self._pull_cpu = sum(map(truediv, off_cpu, lengths)) / count
            self._pull_memory = sum(map(truediv, off_memory, lengths)) / count

    def _distance(self, cpu: float, memory: float) -> float:
        cpu, memory = cpu - self.mean_cpu, memory - self.mean_memory
        return sqrt(cpu * cpu + memory * memory)

    def crossing(self, task: int, node: int) -> tuple[float, float]:
        """Return what a task on a node sends to other nodes and to other racks."""
        nodes = racks = 0.0
        neighbours = self.index.neighbours[task]
        if not neighbours or node == NOWHERE:
            return nodes, racks
        rack, counts, place = self.index.rack, self.index.rack_counts, self.place
        here = rack[node]
        for other, rate in neighbours:
            there = place[other]
            if node != there > NOWHERE:
                nodes += rate
                if rack[there] != here:
                    racks += rate * max(counts[here], counts[rack[there]])
        return nodes, racks


def initial_state(
    index: SnapshotIndex, demands: Iterable[Task], weights: Weights
) -> tuple[list[int], PlacementState]:
    """Return the positions of the demanded tasks, and the state in which all others are where they are."""
    movable = sorted({index.task_at[task.id] for task in demands if task.id in index.task_at})
    wanted = set(movable)
    keep = (task for task, node in enumerate(index.current) if node != NOWHERE and task not in wanted)
    return movable, PlacementState(index, weights, keep=keep)
