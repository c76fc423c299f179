"""Why a task is not on the other nodes: a rule that forbids it, or what it would cost there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from penstock.schedule.constraints import Usage, obstacle, usages
from penstock.schedule.cost import Weights
from penstock.schedule.index import SnapshotIndex
from penstock.schedule.matrix import Matrix
from penstock.schedule.model import ClusterSnapshot, Task
from penstock.schedule.state import PlacementState

_REASONS_SHOWN = 3


class Rejections(Mapping[str, Mapping[str, str]]):
    """For each task the nodes that it is not on, each with the reason. Worked out when it is asked for."""

    def __init__(self, snapshot: ClusterSnapshot, matrix: Matrix, weights: Weights) -> None:
        self._snapshot = snapshot
        self._matrix = matrix
        self._weights = weights
        self._known: dict[tuple[object, ...], str] = {}
        """What was summary of tasks that ask for the same."""

    def __getitem__(self, task: str) -> Mapping[str, str]:
        found = self._snapshot.task_named[task]
        place = self._matrix.places.get(task)
        return {
            node: self._reason(found, node) for node in sorted(self._snapshot.node_named) if node != place
        }

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._snapshot.task_named))

    def __len__(self) -> int:
        return len(self._snapshot.task_named)

    def summary(self, task: str) -> str:
        """Say in words why no node can take a task: the most frequent reasons, with how many nodes have each.

        >>> from penstock.schedule.model import Node
        >>> snapshot = ClusterSnapshot((Node("a", 1, 1024), Node("b", 1, 1024)), (Task("t", "job", cpu=2),))
        >>> Rejections(snapshot, Matrix(), Weights()).summary("t")
        'no node can take it: 2 cores asked for, 1 of 1 free (a and 1 more)'
        """
        if not self._snapshot.nodes:
            return "the cluster has no nodes"
        found = self._snapshot.task_named[task]
        shape = (
            *(found.cpu, found.memory, found.nodes, found.apart, found.avoid, found.current),
            *sorted(found.labels.items()),
        )
        if shape not in self._known:
            self._known[shape] = self._told(found)
        return self._known[shape]

    def _told(self, found: Task) -> str:
        where: dict[str, str] = {}
        reasons: Counter[str] = Counter()
        for node in sorted(self._snapshot.nodes, key=lambda node: node.name):
            reason = obstacle(found, node, self._usages[node.name], self._snapshot)
            text = reason[1] if reason else "it could take it now"
            where.setdefault(text, node.name)
            reasons[text] += 1
        parts = [
            f"{text} ({where[text]}{f' and {count - 1} more' if count > 1 else ''})"
            for text, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ]
        more = f"; and {len(parts) - _REASONS_SHOWN} other reasons" if len(parts) > _REASONS_SHOWN else ""
        return f"no node can take it: {'; '.join(parts[:_REASONS_SHOWN])}{more}"

    def _reason(self, task: Task, node: str) -> str:
        reason = obstacle(task, self._snapshot.node_named[node], self._usages[node], self._snapshot)
        if reason is not None:
            return reason[1]
        if task.id not in self._matrix.places:
            return "it could take it now"
        index = self._state.index
        change = self._state.change(index.task_at[task.id], index.node_at[node])
        return f"it could take it, but all together would cost {change:+.4f}"

    @cached_property
    def _usages(self) -> dict[str, Usage]:
        return usages(self._matrix, self._snapshot)

    @cached_property
    def _state(self) -> PlacementState:
        index = SnapshotIndex(self._snapshot)
        state = PlacementState(index, self._weights)
        for task, node in self._matrix.places.items():
            state.put(index.task_at[task], index.node_at[node])
        state.recompute()
        return state
