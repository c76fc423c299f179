"""Placing tasks one by one, the hardest first, each where it harms least of a few candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from penstock.schedule.index import NOWHERE, Eligible, SnapshotIndex
from penstock.schedule.state import PlacementState

ANYWHERE = -1
"""No rack in particular."""
Emptiness = Callable[[int], float]
"""What nodes are sorted by, smallest first. It only grows while tasks are placed."""
CANDIDATES = 4
"""How many of the emptiest nodes that can take a task are compared."""
NEARBY = 2
"""And how many of the emptiest in the rack that it has most to do with."""


def most_constrained_first(index: SnapshotIndex, tasks: Iterable[int]) -> list[int]:
    """Sort tasks by regret: who has the fewest nodes to go to first, then who needs most.

    A task with few nodes loses most if another takes its place; one with all nodes can wait.
    """
    return sorted(tasks, key=lambda task: (len(index.eligible[task].nodes), -index.size[task], task))


def most_important_first(index: SnapshotIndex, tasks: Iterable[int]) -> list[int]:
    """Sort tasks by the rank of their jobs, and the tasks of a job as :func:`most_constrained_first` does."""
    return sorted(most_constrained_first(index, tasks), key=lambda task: index.priority[task])


class Queues:
    """The nodes of each kind of task, emptiest first.

    Loads only grow while tasks are placed, so an entry that is too small is put right when it is met.
    """

    def __init__(self, state: PlacementState, emptiness: Emptiness) -> None:
        self._state = state
        self._emptiness = emptiness
        self._queues: dict[tuple[Eligible, int], list[tuple[float, int]]] = {}
        self._hopeless: set[tuple[object, ...]] = set()

    def emptiest(self, task: int, most: int, rack: int = ANYWHERE) -> list[int]:
        """Return up to ``most`` nodes that can take the task, emptiest first; of one rack if it is given."""
        index, state = self._state.index, self._state
        shape = (*index.shape(task), rack)
        if shape in self._hopeless:
            return []
        queue = self._queue(index.eligible[task], rack)
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

    def _queue(self, eligible: Eligible, rack: int) -> list[tuple[float, int]]:
        queue = self._queues.get((eligible, rack))
        if queue is None:
            rack_of = self._state.index.rack
            nodes = (node for node in eligible.nodes if rack in (ANYWHERE, rack_of[node]))
            queue = [(self._emptiness(node), node) for node in nodes]
            heapify(queue)
            self._queues[eligible, rack] = queue
        return queue


def place_greedily(state: PlacementState, order: Iterable[int]) -> list[int]:
    """Place tasks in an order, each on the best of a few candidates; return those that found no node.

    The candidates are the emptiest nodes, the nodes of those that the task talks to, the emptiest in the rack
    where most of those are, and its current one.
    """
    index = state.index
    queues = Queues(state, lambda node: fullness(state, node))
    left = []
    for task in order:
        candidates = queues.emptiest(task, CANDIDATES)
        racks: dict[int, float] = {}
        for other, rate in index.neighbours[task]:
            node = state.place[other]
            if node == NOWHERE:
                continue
            racks[index.rack[node]] = racks.get(index.rack[node], 0.0) + rate
            if node not in candidates and state.fits(task, node):
                candidates.append(node)
        if racks and len(index.rack_counts) > 1:
            nearest = max(racks, key=lambda rack: (racks[rack], -rack))
            nearby = queues.emptiest(task, NEARBY, nearest)
            candidates += [node for node in nearby if node not in candidates]
        current = index.current[task]
        if current != NOWHERE and current not in candidates and state.fits(task, current):
            candidates.append(current)
        if not candidates:
            left.append(task)
        elif len(candidates) == 1:
            state.put(task, candidates[0])
        else:
            state.put(task, min(candidates, key=lambda node: (added_cost(state, task, node), node)))
    return left


def fullness(state: PlacementState, node: int) -> float:
    """Return the larger of the shares of a node's cores and memory that are taken."""
    index = state.index
    return max(state.cpu[node] * index.per_core[node], state.memory[node] * index.per_byte[node])


def added_cost(state: PlacementState, task: int, node: int) -> float:
    """Return what placing a task adds: squares of loads instead of S, which needs the means of the end."""
    index, weights = state.index, state.weights
    cpu, memory = state.cpu[node] * index.per_core[node], state.memory[node] * index.per_byte[node]
    more_cpu, more_memory = index.cpu[task] * index.per_core[node], index.bytes[task] * index.per_byte[node]
    added = more_cpu * (2 * cpu + more_cpu) + more_memory * (2 * memory + more_memory)
    added *= weights.imbalance / (2 * len(index.nodes))
    skew = abs(cpu + more_cpu - memory - more_memory) - abs(cpu - memory)
    added += weights.fit * skew / len(index.nodes)
    if index.neighbours[task]:
        nodes, racks = state.crossing(task, node)
        added += (weights.cross_node * nodes + weights.cross_rack * racks) * index.per_rate
    if index.current[task] not in (NOWHERE, node):
        added += weights.moves / index.running
    return added
