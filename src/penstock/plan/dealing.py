"""How records are divided among the instances of a vertex, and which vertices have instances of their own.

A task runs where its records are, unless it says how many instances it has and that is another number than
its sender's, or an edge leads into it that reaches all of them: then records are sent through the shuffle.
"""

from __future__ import annotations

from enum import Enum

from penstock.graph.edge import Edge
from penstock.graph.job import Job
from penstock.graph.kinds import COLUMNAR
from penstock.graph.partitioning import BROADCAST, SAME_KEY
from penstock.graph.vertex import Vertex


class Dealing(Enum):
    """What decides which instance of its target a record goes to."""

    CHAINED = "chained"
    """It stays where it is."""
    BY_KEY = "by key"
    IN_TURN = "in turn"
    TO_ALL = "to all"


def dealing_of(job: Job, edge: Edge) -> Dealing:
    """Return how the records of an edge are dealt out. A sink writes from wherever its records are."""
    sender, target = job.vertices[edge.source], job.vertices[edge.target]
    if target.kind != "task" or isinstance(target.operator, COLUMNAR):
        return Dealing.CHAINED
    if target.sync or edge.by is SAME_KEY:
        return Dealing.BY_KEY
    if edge.by is BROADCAST:
        return Dealing.TO_ALL
    if _is_told_everything(job, target):
        # What comes over its other edges has to meet the same instances.
        chained = has_instances(job, sender) and sender.parallelism == target.parallelism is not None
        return Dealing.CHAINED if chained else Dealing.IN_TURN
    own, others = _number(job, target), _number(job, sender)
    return Dealing.CHAINED if own is None or own == others else Dealing.IN_TURN


def has_instances(job: Job, vertex: Vertex) -> bool:
    """Whether a vertex has instances of its own, each with an object of its own: a plain task may have."""
    if vertex.kind != "task" or vertex.stateful or isinstance(vertex.operator, COLUMNAR):
        return False
    return vertex.parallelism is not None or _is_told_everything(job, vertex)


def _is_told_everything(job: Job, vertex: Vertex) -> bool:
    return any(edge.target == vertex.index and edge.by is BROADCAST for edge in job.edges)


def _number(job: Job, vertex: Vertex) -> int | None:
    """Return how many instances a vertex has; None when nobody says: then it has those of its sender."""
    return job.parallelism if vertex.parallelism is None else vertex.parallelism
