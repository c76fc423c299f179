"""The input and the result of a placement decision.

Nodes, tasks, traffic and links in a frozen snapshot, and the allocation matrix. It knows no documents of a
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.errors import PenstockError

NORMAL = "NORMAL"
OVERLOADED = "OVERLOADED"


@dataclass(frozen=True)
class Node:
    """A server that tasks can run on."""

    name: str
    cores: float
    memory: int
    """Bytes that tasks may use."""
    bandwidth: float = 0.0
    """Bytes a second of its network interface; 0 if unknown."""
    rack: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    load: float = 0.0
    """Its reported load, from 0 to 1."""


@dataclass(frozen=True)
class Task:
    """One unit that can be placed: the driver of a job, or one of its executors.

    Labels and allowed nodes say which nodes may run it: they are the bipartite graph C of SpeedStream (IV.A).
    """

    id: str
    job: str
    kind: str = "driver"
    """``driver`` or ``executor``."""
    cpu: float = 1.0
    """Cores."""
    memory: int = 0
    """Bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that its node must have."""
    nodes: tuple[str, ...] = ()
    """If any, the only nodes that it may run on."""
    apart: str = ""
    """If not empty, no two tasks of this group run on one node."""
    avoid: tuple[str, ...] = ()
    """Nodes that it must not run on: another replica of its job is there, or near."""
    current: str | None = None
    """The node that it runs on now."""
    rank: int = 0
    """If there is not room for all tasks, those with the smallest rank are placed first."""


@dataclass(frozen=True)
class Traffic:
    """What two tasks send each other, both directions together."""

    first: str
    second: str
    rate: float
    """Bytes a second."""


@dataclass(frozen=True)
class Link:
    """The uplink of a rack: what leaves the rack goes through it."""

    rack: str
    bandwidth: float
    """Bytes a second."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """A cluster at one moment. Decisions are functions of it.

    >>> snapshot = ClusterSnapshot((Node("a", 4, 1 << 30, load=0.95), Node("b", 4, 1 << 30)), ())
    >>> [snapshot.status(node) for node in snapshot.nodes]
    ['OVERLOADED', 'NORMAL']
    """

    nodes: tuple[Node, ...]
    tasks: tuple[Task, ...]
    traffic: tuple[Traffic, ...] = ()
    links: tuple[Link, ...] = ()
    overloaded_above: float = 0.9
    """A node with a larger load is OVERLOADED: it keeps its tasks and gets no new ones."""

    def status(self, node: Node) -> str:
        """Return NORMAL or OVERLOADED."""
        return OVERLOADED if node.load > self.overloaded_above else NORMAL

    @cached_property
    def node_named(self) -> Mapping[str, Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def task_named(self) -> Mapping[str, Task]:
        """The tasks by their ids."""
        return {task.id: task for task in self.tasks}

    def placed(self, places: Mapping[str, str]) -> ClusterSnapshot:
        """Return the snapshot with tasks on the given nodes; others stay where they are."""
        return replace(self, tasks=tuple(_running_on(task, places.get(task.id)) for task in self.tasks))

    def without(self, *names: str) -> ClusterSnapshot:
        """Return the snapshot without some nodes, as after their loss: their tasks run nowhere."""
        lost = frozenset(names)
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.name not in lost),
            tasks=tuple(replace(task, current=None) if task.current in lost else task for task in self.tasks),
        )


def _running_on(task: Task, node: str | None) -> Task:
    return task if node is None or node == task.current else replace(task, current=node)


class MatrixError(PenstockError):
    """The given value is no allocation matrix."""


@dataclass(frozen=True)
class Matrix:
    """Which node each task is placed on. A task that is missing is placed nowhere.

    >>> Matrix({"count/driver": "n2"}).of_node("n2")
    ['count/driver']
    """

    places: Mapping[str, str] = field(default_factory=dict)

    def of_node(self, node: str) -> list[str]:
        """Return the tasks on a node, sorted."""
        return sorted(task for task, place in self.places.items() if place == node)

    def moved_from(self, before: Mapping[str, str | None]) -> dict[str, tuple[str | None, str]]:
        """Return what this changes: for each task that changes its node, from where and to where."""
        return {
            task: (before.get(task), node)
            for task, node in sorted(self.places.items())
            if before.get(task) != node
        }

    def to_plain(self) -> dict[str, str]:
        """Return what JSON can hold."""
        return dict(sorted(self.places.items()))

    @classmethod
    def of_plain(cls, given: object) -> Matrix:
        """Read what JSON holds of a matrix; raises MatrixError.

        >>> Matrix.of_plain(["n1"])
        Traceback (most recent call last):
        penstock.schedule.placement_model.MatrixError: expected an object from task to node, found list
        """
        if not isinstance(given, Mapping):
            raise MatrixError(f"expected an object from task to node, found {type(given).__name__}")
        for task, node in given.items():
            if not isinstance(task, str) or not isinstance(node, str):
                raise MatrixError(f"task {task!r} is given {node!r}: expected the name of a node")
        return cls(dict(given))
