"""Heuristics that build a placement.

Greedy by added cost, best fit decreasing, whole jobs in one rack, and the displacement of one task for
another that fits nowhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from penstock.schedule.search.placement_state import NOWHERE, Eligible, PlacementState, SnapshotIndex

ANYWHERE = -1
"""No rack in particular."""
Emptiness = Callable[[int], float]
"""What nodes are sorted by, smallest first. It only grows while tasks are placed."""
CANDIDATES = 4
"""How many of the emptiest nodes that can take a task are compared."""
NEARBY = 2
"""And how many of the emptiest in the rack that it has most to do with."""


def most_constrained_first(index: SnapshotIndex, tasks: Iterable[int]) -> list[int]:
    """Sort tasks by regret: those with the fewest eligible nodes first, then the largest.

    A task with few nodes loses most if another takes its place.
    """
    return sorted(tasks, key=lambda task: (len(index.eligible[task].nodes), -index.size[task], task))


def most_important_first(index: SnapshotIndex, tasks: Iterable[int]) -> list[int]:
    """Sort tasks by the rank of their jobs, and the tasks of a job as :func:`most_constrained_first` does."""
    return sorted(most_constrained_first(index, tasks), key=lambda task: index.priority[task])


class Queues:
    """The nodes of each kind of task, emptiest first.

    Loads only grow while tasks are placed, so an entry that is too small is corrected when it is popped.
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
    """Return the cost that placing a task adds, with squared loads for S: the final means are unknown."""
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


def pack(state: PlacementState, order: Iterable[int]) -> list[int]:
    """Place each task on the fullest node that can take it; return those that found none."""
    rooms = Rooms(state)
    left = []
    hopeless: set[tuple[object, ...]] = set()
    for task in order:
        shape = state.index.shape(task)
        node = NOWHERE if shape in hopeless else rooms.tightest(task)
        if node == NOWHERE:
            hopeless.add(shape)
            left.append(task)
        else:
            rooms.put(task, node)
    return left


class Rooms:
    """The nodes by what is free on them, least first."""

    def __init__(self, state: PlacementState) -> None:
        index = state.index
        self._state = state
        self._cores = max(index.cores, default=1.0) or 1.0
        self._memory = max(index.memory, default=1.0) or 1.0
        self._free = [self._room(node) for node in range(len(index.nodes))]
        self._order = sorted((free, node) for node, free in enumerate(self._free))

    def tightest(self, task: int) -> int:
        """Return the node with the least room of those that can take a task, or NOWHERE."""
        state = self._state
        nodes = state.index.eligible[task].nodes
        if len(nodes) < 16:
            able = [node for node in nodes if state.fits(task, node)]
            return min(able, key=lambda node: (self._free[node], node), default=NOWHERE)
        need = max(state.index.cpu[task] / self._cores, state.index.bytes[task] / self._memory)
        start = bisect_left(self._order, (need, NOWHERE))
        for _, node in self._order[start:]:
            if state.fits(task, node):
                return node
        # Where one resource is scarcer than what the task needs of the other, it may fit all the same.
        for _, node in reversed(self._order[:start]):
            if state.fits(task, node):
                return node
        return NOWHERE

    def put(self, task: int, node: int) -> None:
        """Place a task."""
        del self._order[bisect_left(self._order, (self._free[node], node))]
        self._state.put(task, node)
        self._free[node] = self._room(node)
        insort(self._order, (self._free[node], node))

    def _room(self, node: int) -> float:
        """Return the scarcer of what is free, measured by the largest node."""
        index, state = self._state.index, self._state
        return min(
            (index.cores[node] - state.cpu[node]) / self._cores,
            (index.memory[node] - state.memory[node]) / self._memory,
        )


def place_whole_jobs(state: PlacementState, tasks: Iterable[int]) -> list[int]:
    """Place job by job, each in the rack where that adds least to the cost; return tasks that fit in no rack.

    The largest job comes first, because it fits in the fewest racks.
    """
    index = state.index
    jobs: dict[str, list[int]] = {}
    for task in most_constrained_first(index, tasks):
        jobs.setdefault(index.tasks[task].job, []).append(task)
    left = []
    for members in sorted(jobs.values(), key=lambda members: -sum(index.size[task] for task in members)):
        found: tuple[float, list[int]] | None = None
        for rack in range(len(index.rack_counts)):
            total, places = _fill_rack(state, members, rack)
            if len(places) == len(members) and (found is None or total < found[0]):
                found = total, places
            for task in members[: len(places)]:
                state.put(task, NOWHERE)
        if found is None:
            left += members
        else:
            for task, node in zip(members, found[1], strict=True):
                state.put(task, node)
    return left


def _fill_rack(state: PlacementState, tasks: list[int], rack: int) -> tuple[float, list[int]]:
    """Place tasks in a rack until one does not fit; return the added cost, and the nodes of those placed."""
    index = state.index
    nodes = [node for node, at in enumerate(index.rack) if at == rack]
    total, places = 0.0, []
    for task in tasks:
        able = [(added_cost(state, task, node), node) for node in nodes if state.fits(task, node)]
        if not able:
            break
        least, node = min(able)
        state.put(task, node)
        total += least
        places.append(node)
    return total, places


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
                if self._displace(task, node, other):
                    return True
        self._hopeless.add(shape)
        return False

    def _displace(self, task: int, node: int, other: int) -> bool:
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
