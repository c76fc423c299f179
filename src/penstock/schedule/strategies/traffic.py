"""Tasks that send each other much go together: what stays on a node needs no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.schedule.cost import Weights
from penstock.schedule.greedy import most_constrained_first, place_greedily
from penstock.schedule.improving import improve
from penstock.schedule.index import NOWHERE, SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task, Traffic
from penstock.schedule.state import initial_state
from penstock.schedule.strategies.balanced import Balanced

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
