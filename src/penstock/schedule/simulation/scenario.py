"""A scenario: a cluster, its jobs, their load over time, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.schedule.placement_model import Link, Node, Task, Traffic

GIB = 1 << 30


@dataclass(frozen=True)
class Vertex:
    """A vertex of a topology, which runs as some tasks that are alike."""

    name: str
    cpu: float
    """Cores that each task asks for."""
    memory: int
    """Bytes that each task asks for."""
    tasks: int = 1


@dataclass(frozen=True)
class Edge:
    """What the tasks of one vertex send to those of another, evenly from each to each."""

    source: str
    target: str
    rate: float
    """Bytes a second, of all tasks together, when the job has its full load."""


@dataclass(frozen=True)
class Topology:
    """The graph of a job."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()

    @property
    def cpu(self) -> float:
        """The cores that a job of it asks for."""
        return sum(vertex.tasks * vertex.cpu for vertex in self.vertices)

    @property
    def memory(self) -> int:
        """The bytes of memory that a job of it asks for."""
        return sum(vertex.tasks * vertex.memory for vertex in self.vertices)

    def tasks_of(self, job: str) -> tuple[Task, ...]:
        """Return the tasks of a job that runs it.

        >>> two = Topology("two", (Vertex("read", 1, GIB), Vertex("count", 0.5, GIB, tasks=2)))
        >>> [task.id for task in two.tasks_of("job")]
        ['job/read-1', 'job/count-1', 'job/count-2']
        """
        return tuple(
            Task(f"{job}/{vertex.name}-{number}", job, "executor", vertex.cpu, vertex.memory)
            for vertex in self.vertices
            for number in range(1, vertex.tasks + 1)
        )

    def traffic_of(self, job: str, load: float = 1.0) -> tuple[Traffic, ...]:
        """Return what the tasks of a job send each other under some share of the full load."""
        count = self._count
        return tuple(
            Traffic(
                f"{job}/{edge.source}-{first}",
                f"{job}/{edge.target}-{second}",
                load * edge.rate / (count[edge.source] * count[edge.target]),
            )
            for edge in self.edges
            for first in range(1, count[edge.source] + 1)
            for second in range(1, count[edge.target] + 1)
        )

    @cached_property
    def _count(self) -> Mapping[str, int]:
        return {vertex.name: vertex.tasks for vertex in self.vertices}


@dataclass(frozen=True)
class Load:
    """How the load of each job changes: a random walk between a least share of the full load and 1."""

    every: float
    """Seconds between two steps."""
    step: float = 0.1
    """The largest step up or down."""
    least: float = 0.3


@dataclass(frozen=True)
class Failures:
    """How nodes fail and come back. Not more than half of them are away at once."""

    between: float
    """Seconds between two failures in the whole cluster, on the mean; the times are drawn (exponential)."""
    repair: float = 120.0
    """Seconds until a node is back."""


@dataclass(frozen=True)
class Backup:
    """What is kept of each task on another node, so that it can go on elsewhere."""

    snapshot: float = 64e6
    """Bytes of a task's snapshot for each GiB of memory that it asks for."""
    interval: float = 10.0
    """Seconds between two snapshots; the input since the last one is kept too."""
    restart: float = 2.0
    """Seconds from the loss of a node to the start of its tasks elsewhere, before their data are there."""
    failures: int = 1
    """How many nodes may fail at once without a task losing its place."""
    input_rate: float = 0.0
    """Bytes a second from outside to each task that no other task sends to."""


@dataclass(frozen=True)
class Scenario:
    """All that a run depends on, but for what is drawn. Times are virtual seconds."""

    name: str
    nodes: tuple[Node, ...]
    topologies: tuple[Topology, ...]
    """A job runs one of them, drawn evenly."""
    duration: float
    submit_every: float
    sample_every: float = 5.0
    links: tuple[Link, ...] = ()
    fill: float = 0.9
    """A job that would ask for more than this share of the cluster, with those that run, is not submitted."""
    job_seconds: float = 0.0
    """How long a job runs, on the mean (exponential); 0 for all the time."""
    rebalance_every: float = 0.0
    """Seconds between two decisions about all tasks; 0 for never."""
    overloaded_above: float = 1.0
    """A node with a larger measured load gets nothing new."""
    load: Load | None = None
    failures: Failures | None = None
    backup: Backup | None = None

    @property
    def cores(self) -> float:
        """All cores of the cluster."""
        return sum(node.cores for node in self.nodes)

    @property
    def memory(self) -> int:
        """All memory of the cluster."""
        return sum(node.memory for node in self.nodes)
