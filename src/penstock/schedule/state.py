"""A placement in the making: what is where, what is free, and what it costs, kept up to date move by move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import hypot, sqrt
from operator import truediv

from penstock.schedule.constraints import TOLERANCE
from penstock.schedule.cost import Cost, Weights
from penstock.schedule.index import NOWHERE, Index
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Task

LEAST = 1e-12
"""A gain that is smaller is an error of arithmetic."""
CENTRED = 48
"""With more nodes of different sizes, a move counts the shift of the means by its slope until ``confirm``."""


class State:
    """Tasks on nodes, by position. ``put`` fills it quickly, ``settle`` counts, and ``move`` counts on."""

    def __init__(self, index: Index, weights: Weights, *, keep: Iterable[int] = ()) -> None:
        self.index = index
        self.weights = weights
        self.place = [NOWHERE] * len(index.tasks)
        self.cpu = [0.0] * len(index.nodes)
        self.memory = [0.0] * len(index.nodes)
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

    def settle(self) -> None:
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
        """Move a placed task to another node and count on. Whether it fits is the caller's business."""
        index, before = self.index, self.place[task]
        nodes_before, racks_before = self.crossing(task, before)
        self.put(task, node)
        nodes, racks = self.crossing(task, node)
        self.crossing_nodes += nodes - nodes_before
        self.crossing_racks += racks - racks_before
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
                self.distance[changed] = self._distance(changed)
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
        before, total = self.place[task], self.total()
        if before == node:
            return 0.0
        self.move(task, node)
        changed = self.total() - total
        self.move(task, before)
        return changed

    def total(self) -> float:
        """Return the weighted cost."""
        index, weights = self.index, self.weights
        count = max(len(index.nodes), 1)
        return (
            weights.imbalance * (self.spread + self.slope) / (2 * count)
            + weights.cross_node * self.crossing_nodes * index.per_rate
            + weights.cross_rack * self.crossing_racks * index.per_rate
            + weights.moves * self.moved / index.running
            + weights.fit * self.unfit / count
        )

    def cost(self) -> Cost:
        """Return the terms of the cost."""
        index, count = self.index, max(len(self.index.nodes), 1)
        return Cost.of(
            self.weights,
            (self.spread + self.slope) / (2 * count),
            self.crossing_nodes * index.per_rate,
            self.crossing_racks * index.per_rate,
            self.moved / index.running,
            self.unfit / count,
        )

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
        count = max(len(self.share_cpu), 1)
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

    def _distance(self, node: int) -> float:
        cpu, memory = self.share_cpu[node] - self.mean_cpu, self.share_memory[node] - self.mean_memory
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
            if there not in (node, NOWHERE):
                nodes += rate
                if rack[there] != here:
                    racks += rate * max(counts[here], counts[rack[there]])
        return nodes, racks


def begin(index: Index, demands: Iterable[Task], weights: Weights) -> tuple[list[int], State]:
    """Return the positions of the demanded tasks, and the state in which all others are where they are."""
    movable = sorted({index.task_at[task.id] for task in demands if task.id in index.task_at})
    wanted = set(movable)
    keep = (task for task, node in enumerate(index.current) if node != NOWHERE and task not in wanted)
    return movable, State(index, weights, keep=keep)
