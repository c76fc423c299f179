"""Edges of a job.

The partitioning that the user asks for, and the distribution of records over the instances of the target
that follows from it, together with the number of instances and buckets. It must not know the physical plan.
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
    """Each record goes to one instance: it stays where it is, which costs nothing, where sender and target
    have the same number of them; else they get the records in turn."""

    SAME_KEY = "same-key"
    """All records of a key go to the same instance: a Spark shuffle."""

    BROADCAST = "broadcast"
    """Each record goes to every instance, whichever process it runs in."""


ROUND_ROBIN = Partitioning.ROUND_ROBIN
SAME_KEY = Partitioning.SAME_KEY
BROADCAST = Partitioning.BROADCAST


@dataclass(frozen=True)
class Edge:
    """An edge of a job. Vertices are named by their index, because names may still be wrong.

    >>> Edge(0, "out", 1, "in", Partitioning.ROUND_ROBIN).target
    1
    """

    source: int
    source_port: str
    target: int
    target_port: str
    by: Partitioning


class Distribution(Enum):
    """What decides which instance of its target a record goes to."""

    CHAINED = "chained"
    """It stays where it is."""
    BY_KEY = "by key"
    IN_TURN = "in turn"
    TO_ALL = "to all"


def distribution_of(job: Job, edge: Edge) -> Distribution:
    """Return how the records of an edge are dealt out."""
    return _dealing(job, edge, instances_of(job))


def distributions_of(job: Job) -> list[tuple[Edge, Distribution]]:
    """Return all edges in their order, each with how its records are dealt out."""
    instances = instances_of(job)
    return [(edge, _dealing(job, edge, instances)) for edge in job.edges]


def instances_of(job: Job) -> dict[int, int]:
    """Return how many instances each vertex has that has some of its own; 0 for one in each bucket.

    That is a plain task that says so, or that a BROADCAST edge leads to. Where the job has a number for tasks
    that do not say, it also is one that gets records in turn from such a task.
    """
    plain = [_may_have_instances(vertex) for vertex in job.vertices]
    default = _said(job.parallelism)
    found: dict[int, int] = {}
    for vertex in job.vertices:
        number = _said(vertex.parallelism)
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


def buckets_of(job: Job) -> int | None:
    """Return into how many parts a job divides its keyed work; None leaves that to what runs it.

    These parts are the instances of its tasks with state, which may say their number as well.
    """
    keyed = [_said(vertex.parallelism) for vertex in job.vertices if vertex.stateful]
    return _said(job.buckets) or next(filter(None, keyed), None) or _said(job.parallelism)


def _dealing(job: Job, edge: Edge, instances: Mapping[int, int]) -> Distribution:
    target = job.vertices[edge.target]
    if target.kind != "task" or isinstance(target.operator, COLUMNAR_TASKS):
        return Distribution.CHAINED  # A sink writes from wherever its records are.
    if target.sync or edge.by is SAME_KEY:
        return Distribution.BY_KEY
    if edge.by is BROADCAST:
        return Distribution.TO_ALL
    if edge.target not in instances:
        return Distribution.CHAINED
    same = instances.get(edge.source) == instances[edge.target] and not _is_side(job, edge)
    return Distribution.CHAINED if same else Distribution.IN_TURN


def _is_side(job: Job, edge: Edge) -> bool:
    """Whether an edge leaves from a side port.

    What does not fit a vertex, or may not enter it again, is found by its sender and leaves from there: not
    from an instance of the vertex.
    """
    return job.vertices[edge.source].is_side_port(edge.source_port)


def _may_have_instances(vertex: Vertex) -> bool:
    """Whether a vertex is a plain task: the parts of what keeps state are its keys."""
    return vertex.kind == "task" and not vertex.stateful and not isinstance(vertex.operator, COLUMNAR_TASKS)


def _said(parallelism: object) -> int | None:
    """Return a number of instances; None when there is none, or what there is cannot be one."""
    return parallelism if isinstance(parallelism, int) else None
