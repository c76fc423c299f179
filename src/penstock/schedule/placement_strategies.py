"""The placement strategies and their ordered table; the first is the default.

A strategy takes a snapshot and the tasks to place, and returns a matrix. It does not verify its answer:
``placement_decision`` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from penstock.errors import PenstockError
from penstock.schedule.custom_strategy import is_custom
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, Weights, cost
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task, Traffic
from penstock.schedule.search.construction_heuristics import (
    Queues,
    displace_tasks,
    most_constrained_first,
    most_important_first,
    pack,
    place_greedily,
    place_whole_jobs,
)
from penstock.schedule.search.exact_placement import SolverError, solve
from penstock.schedule.search.local_search import are_few_placements, improve, is_fully_searched
from penstock.schedule.search.placement_state import NOWHERE, PlacementState, SnapshotIndex, initial_state


@dataclass(frozen=True)
class Balanced:
    """Place the most constrained tasks first, each where it adds least to the cost, or whole jobs in one rack
    each, whichever is cheaper; then improve by moves and swaps.

    Only the demanded tasks move, so the loss of a node moves its own tasks only.
    """

    weights: Weights = DEFAULT_WEIGHTS
    tries: int = 30_000
    """How many changes the improvement may try."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        left = place_greedily(state, most_constrained_first(index, movable))
        split = len(index.rack_counts) > 1 and index.per_rate > 0
        if split and is_fully_searched(state, movable) and (left or not are_few_placements(state, movable)):
            state, left = self._whole(index, demands, state, left)
        if left:  # Balancing leaves a little room everywhere, and none that is large: pack instead.
            _, packed = initial_state(index, demands, self.weights)
            unpacked = pack(packed, most_constrained_first(index, movable))
            if len(unpacked) < len(left):
                state, left = packed, unpacked
            left = displace_tasks(state, left, movable)
        if left and len({index.priority[task] for task in movable}) > 1:
            state, left = self._by_rank(index, demands, state, left)
        state.recompute()
        improve(state, movable, self.tries)
        if left:  # What was improved may have made room.
            over = [task for task in movable if state.place[task] == NOWHERE]
            place_greedily(state, most_important_first(index, over))
        return state.matrix()

    def _by_rank(
        self, index: SnapshotIndex, demands: tuple[Task, ...], state: PlacementState, left: list[int]
    ) -> tuple[PlacementState, list[int]]:
        """Place tasks in the order of their ranks, if that leaves over only less important ones."""
        movable, other = initial_state(index, demands, self.weights)
        over = pack(other, most_important_first(index, movable))
        over = displace_tasks(other, over, movable)
        ranks, other_ranks = (
            [*sorted(float(index.priority[task]) for task in tasks), inf] for tasks in (left, over)
        )
        return (other, over) if other_ranks > ranks else (state, left)

    def _whole(
        self, index: SnapshotIndex, demands: tuple[Task, ...], state: PlacementState, left: list[int]
    ) -> tuple[PlacementState, list[int]]:
        """Place whole jobs in one rack, if that is cheaper than what there is and leaves no more over."""
        movable, other = initial_state(index, demands, self.weights)
        over = place_greedily(other, place_whole_jobs(other, movable))
        state.recompute()
        other.recompute()
        better = (len(over), other.total()) < (len(left), state.total())
        return (other, over) if better else (state, left)


@dataclass(frozen=True)
class Packed:
    """Best fit decreasing: the largest first, each on the fullest node that can take it."""

    weights: Weights = DEFAULT_WEIGHTS

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        pack(state, most_constrained_first(index, movable))
        return state.matrix()


HEAVY = Weights(imbalance=0.4, cross_node=0.5, cross_rack=4.0, moves=0.02, fit=0.02)
"""Traffic between nodes counts more than balance too, not only that between racks."""


@dataclass(frozen=True)
class TrafficFirst:
    """Join the pairs that send most as long as they fit on a part of a node, place the joined ones like
    ``balanced``, then improve task by task.
    """

    weights: Weights = HEAVY
    part: float = 0.5
    """Of the largest node: what is joined takes at most this, or else it could not be balanced."""
    tries: int = 20_000

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        joined = join(snapshot, demands, self.part)
        together = tuple(task for task in joined.snapshot.tasks if task.id in joined.members)
        rough = Balanced(self.weights, self.tries // 2).place(joined.snapshot, together)
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        for name, node in rough.places.items():
            for member in joined.members.get(name, ()):
                state.put(index.task_at[member], index.node_at[node])
        left = place_greedily(
            state, most_constrained_first(index, [task for task in movable if state.place[task] == NOWHERE])
        )
        state.recompute()
        improve(state, movable, self.tries // 2)
        place_greedily(state, left)
        return state.matrix()


@dataclass(frozen=True)
class Joined:
    """A snapshot whose tasks stand for several; all that is not demanded is as it was."""

    snapshot: ClusterSnapshot
    members: Mapping[str, tuple[str, ...]]
    """The tasks that each joined task stands for, a single one included."""


def join(snapshot: ClusterSnapshot, demands: tuple[Task, ...], part: float) -> Joined:
    """Join demanded tasks, heaviest pair first. Tasks that run apart from others stay single."""
    most_cpu = part * max((node.cores for node in snapshot.nodes), default=0.0)
    most_memory = part * max((node.memory for node in snapshot.nodes), default=0)
    groups = {task.id: [task] for task in sorted(demands, key=lambda task: task.id)}
    leader = {name: name for name in groups}
    for pair in sorted(snapshot.traffic, key=lambda pair: (-pair.rate, pair.first, pair.second)):
        first, second = leader.get(pair.first), leader.get(pair.second)
        if first is None or second is None or first == second:
            continue
        both = groups[first] + groups[second]
        alike = all(_may_join(task, both[0]) for task in both)
        cpu, memory = sum(task.cpu for task in both), sum(task.memory for task in both)
        if alike and cpu <= most_cpu and memory <= most_memory:
            groups[first] = both
            for task in groups.pop(second):
                leader[task.id] = first
    return _joined(snapshot, groups, leader)


def _may_join(one: Task, other: Task) -> bool:
    alike = (one.nodes, one.avoid, one.labels) == (other.nodes, other.avoid, other.labels)
    return alike and not one.apart and not other.apart


def _joined(snapshot: ClusterSnapshot, groups: Mapping[str, list[Task]], leader: Mapping[str, str]) -> Joined:
    stand_ins = [
        replace(
            tasks[0],
            id=name,
            cpu=sum(task.cpu for task in tasks),
            memory=sum(task.memory for task in tasks),
            current=tasks[0].current if len({task.current for task in tasks}) == 1 else None,
        )
        for name, tasks in groups.items()
    ]
    others = [task for task in snapshot.tasks if task.id not in leader]
    rates: dict[tuple[str, str], float] = defaultdict(float)
    for pair in snapshot.traffic:
        first, second = leader.get(pair.first, pair.first), leader.get(pair.second, pair.second)
        if first != second:
            rates[min(first, second), max(first, second)] += pair.rate
    traffic = tuple(Traffic(first, second, rate) for (first, second), rate in rates.items())
    members = {name: tuple(task.id for task in tasks) for name, tasks in groups.items()}
    return Joined(replace(snapshot, tasks=(*others, *stand_ins), traffic=traffic), members)


@dataclass(frozen=True)
class LoadAware:
    """Each task goes to the node with the least reported load, counting what it was given since.

    What a task asks for and what it uses differ; this trusts what is measured. That OVERLOADED nodes get
    nothing new is a rule for all strategies; tasks that only they could take are placed in a second pass.
    """

    weights: Weights = DEFAULT_WEIGHTS

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks."""
        index = SnapshotIndex(snapshot)
        movable, state = initial_state(index, demands, self.weights)
        load = [node.load for node in index.nodes]
        for task in movable:
            current = index.current[task]
            if current != NOWHERE:  # It may leave: what it takes there is not the node's own.
                load[current] = max(load[current] - index.cpu[task] * index.per_core[current], 0.0)
        queues = Queues(state, lambda node: load[node])
        for task in most_constrained_first(index, movable):
            for node in queues.emptiest(task, 1):
                state.put(task, node)
                load[node] += index.cpu[task] * index.per_core[node]
        return state.matrix()


@dataclass(frozen=True)
class Exact:
    """Solve a mixed-integer program; what the default finds is taken if it is better in the time given."""

    weights: Weights = DEFAULT_WEIGHTS
    seconds: float = 10.0
    largest: int = 2000
    """With more pairs of a task and a node the solver would not come to an end."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the placement of all tasks; raises SolverError."""
        pairs = len(demands) * len(snapshot.nodes)
        if pairs > self.largest:
            raise SolverError(
                f"{len(demands)} tasks on {len(snapshot.nodes)} nodes are too many for an exact placement: "
                f"{pairs} pairs, and {self.largest} at most"
            )
        index = SnapshotIndex(snapshot)
        movable, kept = initial_state(index, demands, self.weights)
        solved = solve(index, movable, kept, self.weights, self.seconds)
        near = Balanced(self.weights).place(snapshot, demands)
        complete = len(near.places) == len(solved.matrix.places)
        if complete and cost(near, snapshot, self.weights).total < solved.total:
            return near
        return solved.matrix


class Strategy(Protocol):
    """Decides where tasks run. A user's own strategy is a class with this method, made without arguments."""

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return where all tasks run.

        ``demands`` are the tasks to be placed. The other tasks of the snapshot stay where they are. A task
        that finds no node is left out.
        """
        ...


class UnknownStrategyError(PenstockError):
    """There is no strategy of that name."""


STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "balanced": Balanced,
    "packed": Packed,
    "traffic": TrafficFirst,
    "load-aware": LoadAware,
    "exact": Exact,
}


def builtin_strategy(name: str) -> Strategy:
    """Return one of Penstock's own strategies.

    >>> builtin_strategy("fastest")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.schedule.placement_strategies.UnknownStrategyError: there is no strategy 'fastest': use ...
    """
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise UnknownStrategyError(
            f"there is no strategy {name!r}: use one of {known}, or MODULE:CLASS for one of your own"
        )
    return STRATEGIES[name]()


def check_strategy_name(name: str) -> str:
    """Return a name that can be a strategy's; whether a user's class is there is found when it is asked.

    >>> check_strategy_name("packed"), check_strategy_name("mine.placing:Nearest")
    ('packed', 'mine.placing:Nearest')
    """
    if not is_custom(name):
        builtin_strategy(name)
    return name


DEFAULT_STRATEGY = "balanced"
