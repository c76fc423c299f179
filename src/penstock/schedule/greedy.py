"""Placing tasks one by one, the hardest first, each where it harms least of a few candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from penstock.schedule.index import NOWHERE, Eligible, Index
from penstock.schedule.state import State

Emptiness = Callable[[int], float]
"""What nodes are sorted by, smallest first. It only grows while tasks are placed."""
CANDIDATES = 4
"""How many of the emptiest nodes that can take a task are compared."""


def hardest_first(index: Index, tasks: Iterable[int]) -> list[int]:
    """Sort tasks by regret: who has the fewest nodes to go to first, then who needs most.

    A task with few nodes loses most if another takes its place; one with all nodes can wait.
    """
    return sorted(tasks, key=lambda task: (len(index.eligible[task].nodes), -index.size[task], task))


class Queues:
    """The nodes of each kind of task, emptiest first.

    Loads only grow while tasks are placed, so an entry that is too small is put right when it is met.
    """

    def __init__(self, state: State, emptiness: Emptiness) -> None:
        self._state = state
        self._emptiness = emptiness
        self._queues: dict[Eligible, list[tuple[float, int]]] = {}
        self._hopeless: set[tuple[object, ...]] = set()

    def emptiest(self, task: int, most: int) -> list[int]:
        """Return up to ``most`` nodes that can take the task, emptiest first."""
        index, state = self._state.index, self._state
        eligible = index.eligible[task]
        shape = index.shape(task)
        if shape in self._hopeless:
            return []
        queue = self._queue(eligible)
        found: list[int] = []
        seen: list[tuple[float, int]] = []
        while queue and len(found) < most:
            key, node = heappop(queue)
            now = self._emptiness(node)
            if now > key:
                heappush(queue, (now, node))
                continue
            seen.append((key, node))
            if state.fits(task, node):
                found.append(node)
        for entry in seen:
            heappush(queue, entry)
        if not found:
            self._hopeless.add(shape)
        return found

    def _queue(self, eligible: Eligible) -> list[tuple[float, int]]:
        queue = self._queues.get(eligible)
        if queue is None:
            queue = [(self._emptiness(node), node) for node in eligible.nodes]
            heapify(queue)
            self._queues[eligible] = queue
        return queue


def fill(state: State, order: Iterable[int]) -> list[int]:
    """Place tasks in an order, each on the best of a few candidates; return those that found no node.

    The candidates are the emptiest nodes, the nodes of those that the task talks to, and its current one.
    """
    index = state.index
    queues = Queues(state, lambda node: fullness(state, node))
    left = []
    for task in order:
        candidates = queues.emptiest(task, CANDIDATES)
        for other, _ in index.neighbours[task]:
            node = state.place[other]
            if node != NOWHERE and node not in candidates and state.fits(task, node):
                candidates.append(node)
        current = index.current[task]
        if current != NOWHERE and current not in candidates and state.fits(task, current):
            candidates.append(current)
        if not candidates:
            left.append(task)
        elif len(candidates) == 1:
            state.put(task, candidates[0])
        else:
            state.put(task, min(candidates, key=lambda node: (_harm(state, task, node), node)))
    return left


def fullness(state: State, node: int) -> float:
    """Return the larger of the shares of a node's cores and memory that are taken."""
    index = state.index
    return max(state.cpu[node] * index.per_core[node], state.memory[node] * index.per_byte[node])


def _harm(state: State, task: int, node: int) -> float:
    """Return what placing a task adds: squares of loads instead of S, which needs the means of the end."""
    index, weights = state.index, state.weights
    cpu, memory = state.cpu[node] * index.per_core[node], state.memory[node] * index.per_byte[node]
    more_cpu, more_memory = index.cpu[task] * index.per_core[node], index.bytes[task] * index.per_byte[node]
    harm = more_cpu * (2 * cpu + more_cpu) + more_memory * (2 * memory + more_memory)
    harm *= weights.imbalance / (2 * len(index.nodes))
    skew = abs(cpu + more_cpu - memory - more_memory) - abs(cpu - memory)
    harm += weights.fit * skew / len(index.nodes)
    if index.neighbours[task]:
        nodes, racks = state.crossing(task, node)
        harm += (weights.cross_node * nodes + weights.cross_rack * racks) * index.per_rate
    if index.current[task] not in (NOWHERE, node):
        harm += weights.moves / index.running
    return harm
