"""Local search for a better placement: moves and swaps, until none helps or the budget is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations

from penstock.schedule.placement_constraints import TOLERANCE
from penstock.schedule.search.placement_state import LEAST, NOWHERE, PlacementState

FULL_SEARCH_PAIRS = 4000
"""With so many pairs of a task and a node at most, every pair is tried; else only those that promise most."""
FULL_SEARCH_NODES = 128
"""And with so many nodes at most: else a few tasks on many nodes would take long for a small gain."""
TOGETHER = 9
"""So many tasks of two nodes at most are dealt anew in all ways."""
SHAKEN = 3
"""How many tasks of a small cluster are moved at will before it is improved again."""
PATIENCE = 120
"""How often that may fail before it is given up."""
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
    """Lower the cost by moving tasks that may move: by single moves, by swaps, by dealing two nodes anew."""
    budget = Budget(tries)
    movable = [task for task in sorted(movable) if state.place[task] != NOWHERE]
    if is_fully_searched(state, movable):
        descend(state, movable, budget)
        perturb(state, movable, budget)
        return
    better = True
    while better and budget.left > 0:
        better = _towards_neighbours(state, movable, budget)
        better = _ends(state, movable, budget) or better


def is_fully_searched(state: PlacementState, movable: Sequence[int]) -> bool:
    """Say whether there is time to try everything."""
    nodes = len(state.index.nodes)
    return nodes <= FULL_SEARCH_NODES and len(movable) * nodes <= FULL_SEARCH_PAIRS


def descend(state: PlacementState, movable: Sequence[int], budget: Budget, *, deal: bool = True) -> None:
    """Try every move and every swap, and if none helps deal two nodes anew, until nothing helps."""
    better = True
    while better and budget.left > 0:
        better = _moves(state, movable, budget)
        better = _swaps(state, movable, movable, budget) or better
        better = better or (deal and _repartition_all(state, movable, budget))


def perturb(state: PlacementState, movable: Sequence[int], budget: Budget) -> None:
    """Leave a local optimum: move a few tasks at random, descend again, and keep the best placement found."""
    best, least = list(state.place), state.total()
    draws = _draws()
    # From the same places the descent leads to the same end. With few tasks most shakes repeat one another.
    tried: set[tuple[int, ...]] = set()
    free = [task for task in movable if len(state.index.eligible[task].nodes) > 1]
    patience = PATIENCE
    while free and patience > 0 and budget.spend(SHAKEN):
        patience -= 1
        for _ in range(SHAKEN):
            task = free[next(draws) % len(free)]
            nodes = state.index.eligible[task].nodes
            node = nodes[next(draws) % len(nodes)]
            if node != state.place[task] and state.fits(task, node):
                state.move(task, node)
        shaken = tuple(state.place[task] for task in movable)
        if shaken not in tried:
            tried.add(shaken)
            descend(state, movable, budget, deal=False)
        if state.total() < least - LEAST:
            best, least, patience = list(state.place), state.total(), PATIENCE
        else:
            _restore(state, movable, best)
    _restore(state, movable, best)


def _restore(state: PlacementState, movable: Sequence[int], places: Sequence[int]) -> None:
    for task in movable:
        if state.place[task] != places[task]:
            state.move(task, places[task])


def _draws() -> Iterator[int]:
    """Return numbers that look drawn and are the same each time: decisions must be repeatable."""
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


def _is_right(state: PlacementState, task: int) -> bool:
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
    """Deal the tasks of two nodes anew in every way, for each pair of nodes."""
    better = False
    for one, two in combinations(range(len(state.index.nodes)), 2):
        tasks = [task for task in movable if state.place[task] in (one, two)]
        if len(tasks) > TOGETHER or not budget.spend(1 << len(tasks)):
            continue
        better = _repartition(state, tasks, one, two) or better
    return better


def _repartition(state: PlacementState, tasks: Sequence[int], one: int, two: int) -> bool:
    """Go through all ways by changing one task at a time (a Gray code), and end at the best."""
    start = best = [state.place[task] for task in tasks]
    least = state.total() - LEAST
    for step in range(1, 1 << len(tasks)):
        task = tasks[(step & -step).bit_length() - 1]
        state.move(task, two if state.place[task] == one else one)
        if state.total() < least and all(_is_right(state, other) for other in tasks):
            least = state.total()
            best = [state.place[other] for other in tasks]
    for task, node in zip(tasks, best, strict=True):
        if state.place[task] != node:
            state.move(task, node)
    return best is not start


def _towards_neighbours(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
    """Try each task where those are that it sends most to."""
    better = False
    for task in movable:
        neighbours = state.index.neighbours[task]
        if neighbours and budget.left > 0:
            nodes = {state.place[other] for other, _ in neighbours} - {NOWHERE, state.place[task]}
            better = _move(state, task, sorted(nodes)[:CLOSEST], budget) or better
    return better


def _ends(state: PlacementState, movable: Sequence[int], budget: Budget) -> bool:
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
