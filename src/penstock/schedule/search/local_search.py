"""Local search for a better placement: moves and swaps, until none helps or the budget is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations

from penstock.schedule.placement_constraints import TOLERANCE
from penstock.schedule.search.placement_state import LEAST, NOWHERE, PlacementState

FULL_SEARCH_PAIRS = 4000
"""With so many pairs of a task and a node at most, every pair is tried; else only the most promising."""
FULL_SEARCH_NODES = 128
"""And with so many nodes at most: else a few tasks on many nodes would take long for a small gain."""
ALL_WAYS = 512
"""With so many ways to place some tasks at most, every way is tried."""
SHAKEN = 3
"""How many tasks of a small cluster are moved at random before it is improved again."""
PATIENCE = 120
"""How often in a row that may fail before the search ends."""
ENDS = 64
"""How many nodes of a large cluster, those farthest from the means, are looked at in each round."""
CLOSEST = 4
"""How many other nodes are tried with each of them, and for each task those of so many neighbours."""


@dataclass
class Budget:
    """How many more changes may be tried. Counting instead of timing keeps decisions repeatable."""

    left: int

    def spend(self, tries: int = 1) -> bool:
        """Take from the budget; False when it is used up."""
        self.left -= tries
        return self.left >= 0


def improve(state: PlacementState, movable: Sequence[int], tries: int) -> None:
    """Lower the cost by moving tasks that may move: by single moves, by swaps, by repartitions of two nodes.

    Where there are few ways to place them, every way is tried instead. A task without a choice takes no part.
    """
    budget = Budget(tries)
    eligible = state.index.eligible
    movable = [
        task for task in sorted(movable) if state.place[task] != NOWHERE and len(eligible[task].nodes) > 1
    ]
    if not movable:
        return
    if are_few_placements(state, movable):
        _try_all(state, movable, [eligible[task].nodes for task in movable])
        return
    if is_fully_searched(state, movable):
        descend(state, movable, budget)
        if len(movable) > 1:
            perturb(state, movable, budget)
        return
    better = True
    while better and budget.left > 0:
        better = _move_to_neighbours(state, movable, budget)
        better = _balance_extremes(state, movable, budget) or better


def is_fully_searched(state: PlacementState, movable: Sequence[int]) -> bool:
    """Say whether every move and every swap can be tried."""
    nodes = len(state.index.nodes)
    return nodes <= FULL_SEARCH_NODES and len(movable) * nodes <= FULL_SEARCH_PAIRS


def are_few_placements(state: PlacementState, tasks: Sequence[int]) -> bool:
    """Say whether there are so few ways to place some tasks that all can be tried.

    The cost of a lazy state is exact only after ``confirm``, so it cannot be compared way by way.
    """
    ways = 1
    for task in tasks:
        ways *= len(state.index.eligible[task].nodes)
        if ways > ALL_WAYS:
            return False
    return not state.lazy


def descend(
    state: PlacementState, movable: Sequence[int], budget: Budget, *, repartition: bool = True
) -> None:
    """Try every move and every swap, and if none helps repartition pairs of nodes, until nothing helps."""
    better = True
    while better and budget.left > 0:
        better = _moves(state, movable, budget)
        better = _swaps(state, movable, movable, budget) or better
        better = better or (repartition and _repartition_all(state, movable, budget))


def perturb(state: PlacementState, movable: Sequence[int], budget: Budget) -> None:
    """Leave a local optimum: move a few tasks at random, descend again, and keep the best placement found."""
    best, least = [state.place[task] for task in movable], state.total()
    draws = _draws()
    # A descent from the same places ends at the same ones, and with few tasks most perturbations repeat.
    tried: set[tuple[int, ...]] = set()
    patience = PATIENCE
    while patience > 0 and budget.spend(SHAKEN):
        patience -= 1
        for _ in range(SHAKEN):
            task = movable[next(draws) % len(movable)]
            nodes = state.index.eligible[task].nodes
            node = nodes[next(draws) % len(nodes)]
            if node != state.place[task] and state.fits(task, node):
                state.move(task, node)
        perturbed = tuple(state.place[task] for task in movable)
        if perturbed not in tried:
            tried.add(perturbed)
            descend(state, movable, budget, repartition=False)
        if state.total() < least - LEAST:
            best, least, patience = [state.place[task] for task in movable], state.total(), PATIENCE
        else:
            _restore(state, movable, best)
    _restore(state, movable, best)


def _restore(state: PlacementState, tasks: Sequence[int], places: Sequence[int]) -> None:
    for task, node in zip(tasks, places, strict=True):
        if state.place[task] != node:
            state.move(task, node)


def _draws() -> Iterator[int]:
    """Return pseudo-random numbers, the same each time: decisions must be repeatable."""
    number = 1
    while True:
        number = (number * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield number >> 33


def _moves(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
    better = False
    for task in movable:
        better = _move(state, task, state.index.eligible[task].nodes, budget) or better
    return better


def _move(state: PlacementState, task: int, nodes: Sequence[int], budget: Budget) -> bool:
    """Move a task to the best of some nodes, if that is better than where it is."""
    best, least = NOWHERE, -LEAST
    for node in nodes:
        if node != state.place[task] and state.fits(task, node):
            if not budget.spend():
                break
            change = state.change(task, node)
            if change < least:
                best, least = node, change
    if best == NOWHERE:
        return False
    before, total = state.place[task], state.total()
    state.move(task, best)
    if state.confirm(total):
        return True
    state.move(task, before)
    state.confirm(total)
    return False


def _swaps(state: PlacementState, some: Sequence[int], others: Sequence[int], budget: Budget) -> bool:
    better = False
    for first in some:
        for second in others:
            if (some is not others or first < second) and state.place[first] != state.place[second]:
                if not budget.spend():
                    return better
                better = _swap(state, first, second) or better
    return better


def _swap(state: PlacementState, first: int, second: int) -> bool:
    """Swap two tasks if that is allowed and better."""
    index = state.index
    one, two = state.place[first], state.place[second]
    if two not in index.eligible[first].members or one not in index.eligible[second].members:
        return False
    more_cpu, more_memory = index.cpu[first] - index.cpu[second], index.bytes[first] - index.bytes[second]
    if more_cpu == 0 == more_memory and not index.neighbours[first] and not index.neighbours[second]:
        return False
    if not (_may_swap(state, first, two, second) and _may_swap(state, second, one, first)):
        return False
    if state.change_of_swap(first, second) >= -LEAST:
        return False
    before = state.total()
    state.move(first, two)
    state.move(second, one)
    if state.confirm(before):
        return True
    state.move(second, two)
    state.move(first, one)
    state.confirm(before)
    return False


def _may_swap(state: PlacementState, task: int, node: int, other: int) -> bool:
    """Say whether a node keeps the rules with a task instead of another; the node may run the task."""
    index, group = state.index, state.index.apart[task]
    return (
        state.cpu[node] + index.cpu[task] - index.cpu[other] <= index.cores[node] + TOLERANCE / 2
        and state.memory[node] + index.bytes[task] - index.bytes[other] <= index.memory[node]
        and (index.normal[node] or index.current[task] == node)
        and not (group and state.groups[group, node] > (index.apart[other] == group))
    )


def _keeps_rules(state: PlacementState, task: int) -> bool:
    """Say whether a placed task, and with it its whole node, keeps the rules."""
    index, node = state.index, state.place[task]
    return (
        state.cpu[node] <= index.cores[node] + TOLERANCE / 2
        and state.memory[node] <= index.memory[node]
        and (index.normal[node] or index.current[task] == node)
        and node in index.eligible[task].members
        and not (index.apart[task] and state.groups[index.apart[task], node] > 1)
    )


def _repartition_all(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
    """Try all ways to place the tasks of two nodes on these two, for each pair of nodes."""
    better = False
    for one, two in combinations(range(len(state.index.nodes)), 2):
        tasks = [task for task in movable if state.place[task] in (one, two)]
        if 1 << len(tasks) > ALL_WAYS or not budget.spend(1 << len(tasks)):
            continue
        better = _try_all(state, tasks, [(one, two)] * len(tasks)) or better
    return better


def _try_all(state: PlacementState, tasks: Sequence[int], choices: Sequence[Sequence[int]]) -> bool:
    """Try all ways to place each task on one of its nodes, and end at the best; say whether that is better.

    One task moves at a time, to the node before or after its own (a reflected Gray code). Each task is on
    one of its nodes already.
    """
    start = best = [state.place[task] for task in tasks]
    least = state.total() - LEAST
    ways = [
        [now, *(node for node in nodes if node != now)] for now, nodes in zip(start, choices, strict=True)
    ]
    at, step = [0] * len(tasks), [1] * len(tasks)
    while True:
        for position, nodes in enumerate(ways):
            if 0 <= at[position] + step[position] < len(nodes):
                break
            step[position] = -step[position]
        else:
            break
        at[position] += step[position]
        state.move(tasks[position], nodes[at[position]])
        if state.total() < least and all(_keeps_rules(state, task) for task in tasks):
            least = state.total()
            best = [state.place[task] for task in tasks]
    _restore(state, tasks, best)
    return best is not start


def _move_to_neighbours(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
    """Try each task on the nodes of the tasks that it talks to."""
    better = False
    for task in movable:
        neighbours = state.index.neighbours[task]
        if neighbours and budget.left > 0:
            nodes = {state.place[other] for other, _ in neighbours} - {NOWHERE, state.place[task]}
            better = _move(state, task, sorted(nodes)[:CLOSEST], budget) or better
    return better


def _balance_extremes(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
    """Move and swap tasks between the most unbalanced nodes and the nodes with the opposite imbalance."""
    count = len(state.index.nodes)
    tasks: list[list[int]] = [[] for _ in range(count)]
    for task in movable:
        tasks[state.place[task]].append(task)
    cpu = [share - state.mean_cpu for share in state.share_cpu]
    memory = [share - state.mean_memory for share in state.share_memory]
    touched = (node for node in range(count) if tasks[node])
    farthest = sorted(touched, key=lambda node: (-state.distance[node], node))[:ENDS]
    better = False
    for node in farthest:
        here_cpu, here_memory = cpu[node], memory[node]
        products = [here_cpu * c + here_memory * m for c, m in zip(cpu, memory, strict=True)]
        for other in nsmallest(CLOSEST, range(count), key=lambda other: (products[other], other)):
            if budget.left <= 0:
                return better
            for task in tasks[node]:
                if state.place[task] == node:
                    better = _move(state, task, (other,), budget) or better
            for task in tasks[other]:
                if state.place[task] == other:
                    better = _move(state, task, (node,), budget) or better
            here = [task for task in tasks[node] if state.place[task] == node]
            there = [task for task in tasks[other] if state.place[task] == other]
            better = _swaps(state, here, there, budget) or better
    return better
