"""Baseline strategies to compare with: the hash of S4, and Storm's even and resource-aware schedulers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from penstock.schedule.placement_cost import DEFAULT_WEIGHTS
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task
from penstock.schedule.placement_strategies import Strategy
from penstock.schedule.search.placement_state import NOWHERE, PlacementState, SnapshotIndex, initial_state


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


@dataclass(frozen=True)
class StormResourceAware:
    """Racks, then nodes, by the job's tasks there, by the scarcest resource, by the mean of what is free.

    Where a task fits nowhere, the one before it tries its next node, a limited number of times.
    """

    steps: int = 1000
    """How often a job may try a node before what has fitted by then is left as it is."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, DEFAULT_WEIGHTS)
        jobs: dict[str, list[int]] = defaultdict(list)
        for task in movable:
            jobs[index.tasks[task].job].append(task)
        there: dict[str, Counter[int]] = defaultdict(Counter)
        for task, node in enumerate(state.place):
            if node != NOWHERE:
                there[index.tasks[task].job][node] += 1
        for job in sorted(jobs):
            _search(state, by_connections(index, jobs[job]), there[job], self.steps)
        return state.matrix()


def component(task: Task) -> str:
    """Return the vertex that a task is of: tasks whose names differ in their last number only are of one.

    >>> component(Task("wordcount/count-12", "wordcount"))
    'wordcount/count'
    """
    return task.id.rstrip("0123456789").rstrip("-/.")


def by_connections(index: SnapshotIndex, tasks: list[int]) -> list[int]:
    """Return tasks in the order that they are placed in.

    Vertices with the most connections come first; with each come its neighbours, those with the fewest tasks
    first: one task of the vertex, one of each neighbour, and again, until all of them are there.
    """
    waiting: dict[str, list[int]] = defaultdict(list)
    for task in tasks:
        waiting[component(index.tasks[task])].append(task)
    count = {name: len(members) for name, members in waiting.items()}
    near: dict[str, set[str]] = {name: set() for name in waiting}
    inside = set(tasks)
    for task in tasks:
        here = component(index.tasks[task])
        others = (component(index.tasks[other]) for other, _ in index.neighbours[task] if other in inside)
        near[here].update(name for name in others if name != here)
    connections = {name: count[name] * sum(count[other] for other in near[name]) for name in near}
    order: list[int] = []
    for name in sorted(waiting, key=lambda name: (-connections[name], name)):
        turn = [name, *sorted(near[name], key=lambda other: (count[other], other))]
        while any(waiting[member] for member in turn):
            order += [waiting[member].pop(0) for member in turn if waiting[member]]
    return order


def _search(state: PlacementState, order: list[int], job: Counter[int], steps: int) -> None:
    """Place tasks depth first; keep what fits if not all do. ``job`` counts the job's tasks on each node."""
    trails: list[Iterator[int]] = []
    while len(trails) < len(order) and steps > 0:
        task = order[len(trails)]
        trail = iter(_nodes(state, task, job))
        while True:
            steps -= 1
            node = next(trail, None)
            if node is not None:
                state.put(task, node)
                job[node] += 1
                trails.append(trail)
                break
            if not trails or steps <= 0:
                break
            trail = trails.pop()
            task = order[len(trails)]
            job[state.place[task]] -= 1
            state.put(task, NOWHERE)
        if node is None:
            break
    for task in order[len(trails) :]:
        node = next(iter(_nodes(state, task, job)), None)
        if node is not None:
            state.put(task, node)
            job[node] += 1


def _nodes(state: PlacementState, task: int, job: Counter[int]) -> list[int]:
    """Return the nodes that can take a task, in the order that they are tried in.

    What is free of a rack is measured by what is free of the cluster, and what is free of a node by what is
    free of its rack, so that the scarcer resource is the one that is scarce now.
    """
    index = state.index
    everywhere = _Free()
    racks: dict[int, _Free] = defaultdict(_Free)
    nodes = []
    for node, rack in enumerate(index.rack):
        free = _Free(
            max(index.cores[node] - state.cpu[node], 0.0),
            max(index.memory[node] - state.memory[node], 0.0),
            job[node],
        )
        nodes.append(free)
        racks[rack].add(free)
        everywhere.add(free)

    def rank(node: int) -> tuple[float, ...]:
        rack = index.rack[node]
        return (*racks[rack].rank(everywhere), rack, *nodes[node].rank(racks[rack]), node)

    return sorted((node for node in range(len(index.nodes)) if state.fits(task, node)), key=rank)


@dataclass
class _Free:
    """What is free on a node, in a rack or in the cluster, and how many tasks of the job are there."""

    cores: float = 0.0
    memory: float = 0.0
    tasks: int = 0

    def add(self, other: _Free) -> None:
        self.cores += other.cores
        self.memory += other.memory
        self.tasks += other.tasks

    def rank(self, whole: _Free) -> tuple[float, float, float]:
        """Return what the best has least of."""
        cores, memory = self.cores / (whole.cores or 1.0), self.memory / (whole.memory or 1.0)
        return -self.tasks, -min(cores, memory), -(cores + memory)


BASELINES: Mapping[str, Callable[[], Strategy]] = {
    "storm-even": StormEven,
    "storm-resource-aware": StormResourceAware,
    "s4-hash": S4Hash,
}
