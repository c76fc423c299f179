"""Storm's resource-aware strategy: the best connected tasks first, where most of their job is already."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.schedule.cost import DEFAULT
from penstock.schedule.index import NOWHERE, Index
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import Snapshot, Task
from penstock.schedule.state import State, begin


@dataclass(frozen=True)
class StormResourceAware:
    """Racks, then nodes, by the job's tasks there, by the scarcest resource, by the mean of what is free.

    Where a task fits nowhere, the one before it tries its next node, a limited number of times.
    """

    steps: int = 1000
    """How often a job may try a node before what has fitted by then is left as it is."""

    def place(self, snapshot: Snapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = Index(snapshot)
        movable, state = begin(index, demands, DEFAULT)
        jobs: dict[str, list[int]] = defaultdict(list)
        for task in movable:
            jobs[index.tasks[task].job].append(task)
        for job in sorted(jobs):
            _search(state, _by_connections(index, jobs[job]), self.steps)
        return state.matrix()


def _by_connections(index: Index, tasks: list[int]) -> list[int]:
    """Return the best connected task, then those that it talks to, and so on."""
    inside = set(tasks)
    degree = {task: sum(1 for other, _ in index.neighbours[task] if other in inside) for task in tasks}
    left = sorted(tasks, key=lambda task: (-degree[task], task))
    order: list[int] = []
    while left:
        waiting = [left[0]]
        while waiting:
            task = waiting.pop(0)
            if task in order:
                continue
            order.append(task)
            near = {other for other, _ in index.neighbours[task] if other in inside}
            waiting += sorted(near, key=lambda other: (-degree[other], other))
        left = [task for task in left if task not in order]
    return order


def _search(state: State, order: list[int], steps: int) -> None:
    """Place tasks depth first; keep what fits if not all do."""
    job = Counter[int]()
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


def _nodes(state: State, task: int, job: Counter[int]) -> list[int]:
    """Return the nodes that can take a task, in the order that they are tried in."""
    index = state.index
    all_cores, all_memory = sum(index.cores) or 1.0, sum(index.memory) or 1.0
    rack_cores: dict[int, float] = defaultdict(float)
    rack_memory: dict[int, float] = defaultdict(float)
    rack_job: Counter[int] = Counter()
    free: list[tuple[float, float]] = []
    for node, rack in enumerate(index.rack):
        cores = (index.cores[node] - state.cpu[node]) / all_cores
        memory = (index.memory[node] - state.memory[node]) / all_memory
        free.append((cores, memory))
        rack_cores[rack] += cores
        rack_memory[rack] += memory
        rack_job[rack] += job[node]

    def rank(node: int) -> tuple[float, ...]:
        rack = index.rack[node]
        cores, memory = free[node]
        return (
            -rack_job[rack],
            -min(rack_cores[rack], rack_memory[rack]),
            -(rack_cores[rack] + rack_memory[rack]),
            rack,
            -job[node],
            -min(cores, memory),
            -(cores + memory),
            node,
        )

    return sorted((node for node in range(len(index.nodes)) if state.fits(task, node)), key=rank)
