"""Edges of a job.

Derives the distribution of records over the instances of a target, and the numbers of instances and buckets,
from the partitioning that the user has chosen. It must not depend on the physical plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.graph.graph_algorithms import arcs_of, reachable
from penstock.graph.tasks import COLUMNAR_TASKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


class Partitioning(Enum):
    """The way an edge divides its records.

    >>> Partitioning.SAME_KEY.value
    'same-key'
    """

    ROUND_ROBIN = "round-robin"
    """Each record goes to one instance. If sender and target have the same number of instances, records stay
    in their process, which costs nothing; otherwise the instances get records in turn."""

    SAME_KEY = "same-key"
    """All records of a key go to the same instance, through a Spark shuffle."""

    BROADCAST = "broadcast"
    """Each record goes to every instance, in all processes."""


ROUND_ROBIN = Partitioning.ROUND_ROBIN
SAME_KEY = Partitioning.SAME_KEY
BROADCAST = Partitioning.BROADCAST


@dataclass(frozen=True)
class Edge:
    """An edge of a job. Vertices are identified by index, because names may still be invalid.

    >>> Edge(0, "out", 1, "in", Partitioning.ROUND_ROBIN).target
    1
    """

    source: int
    source_port: str
    target: int
    target_port: str
    by: Partitioning


class Distribution(Enum):
    """How the instance of the target is chosen for a record."""

    CHAINED = "chained"
    """The record stays in its process."""
    BY_KEY = "by key"
    IN_TURN = "in turn"
    TO_ALL = "to all"


def distribution_of(job: Job, edge: Edge) -> Distribution:
    """Return how the records of an edge are distributed."""
    return _distribution(job, edge, instances_of(job))


def distributions_of(job: Job) -> list[tuple[Edge, Distribution]]:
    """Return all edges in the order of adding, each with its distribution."""
    instances = instances_of(job)
    return [(edge, _distribution(job, edge, instances)) for edge in job.edges]


def instances_of(job: Job) -> dict[int, int]:
    """Return the number of instances of each vertex that has its own; 0 leaves it to the runtime.

    These are plain tasks that declare a number, or that are the target of a BROADCAST edge. If the job has a
    default parallelism, they include tasks that receive records in turn from such a task.
    """
    plain = [_may_have_instances(vertex) for vertex in job.vertices]
    default = _declared_number(job.parallelism)
    found: dict[int, int] = {}
    for vertex in job.vertices:
        number = _declared_number(vertex.parallelism)
        if plain[vertex.index] and number is not None:
            found[vertex.index] = number
    for edge in job.edges:
        if edge.by is BROADCAST and plain[edge.target]:
            found.setdefault(edge.target, default or 0)
    if default is not None:
        onward = arcs_of(
            len(job.vertices),
            (
                (edge.source, edge.target)
                for edge in job.edges
                if edge.by is ROUND_ROBIN and plain[edge.target] and not _is_side(job, edge)
            ),
        )
        for index in reachable(onward, found):
            found.setdefault(index, default)
    return dict(sorted(found.items()))


DEFAULT_BUCKETS = 128
"""The number of buckets of a new job: enough to divide its load among tasks in small steps."""


def slots_of(job: Job) -> int | None:
    """Return the number of tasks that process keys at once; None leaves it to the runtime.

    These tasks are the instances of the stateful tasks, whose ``parallelism`` can set the number.
    """
    keyed = [_declared_number(vertex.parallelism) for vertex in job.vertices if vertex.stateful]
    return next(filter(None, keyed), None) or _declared_number(job.parallelism)


def buckets_of(job: Job, known: int | None) -> int:
    """Return the number of buckets into which a job divides its keys.

    A job that does not declare it continues with the ``known`` number of its last run.
    """
    return _declared_number(job.buckets) or known or max(DEFAULT_BUCKETS, slots_of(job) or 0)


def _distribution(job: Job, edge: Edge, instances: Mapping[int, int]) -> Distribution:
    target = job.vertices[edge.target]
    if target.kind != "task" or isinstance(target.operator, COLUMNAR_TASKS):
        return Distribution.CHAINED  # A sink writes in the process of its records.
    if target.sync or edge.by is SAME_KEY:
        return Distribution.BY_KEY
    if edge.by is BROADCAST:
        return Distribution.TO_ALL
    if edge.target not in instances:
        return Distribution.CHAINED
    same = instances.get(edge.source) == instances[edge.target] and not _is_side(job, edge)
    return Distribution.CHAINED if same else Distribution.IN_TURN


def _is_side(job: Job, edge: Edge) -> bool:
    """Return whether an edge starts at a side port.

    Records that do not fit a vertex, or may not enter it again, are detected by the sender and leave from
    there, not from an instance of the vertex.
    """
    return job.vertices[edge.source].is_side_port(edge.source_port)


def _may_have_instances(vertex: Vertex) -> bool:
    """Return whether a vertex is a plain task: tasks with state are divided by key."""
    return vertex.kind == "task" and not vertex.stateful and not isinstance(vertex.operator, COLUMNAR_TASKS)


def _declared_number(parallelism: object) -> int | None:
    """Return a declared number of instances; None if there is none or it is invalid."""
    return parallelism if isinstance(parallelism, int) else None
