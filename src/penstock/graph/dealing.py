"""How records are divided among the instances of a vertex, and which vertices have instances of their own.

A task runs where its records are, unless it says how many instances it has and that is another number than
its sender's, or an edge leads into it that reaches all of them: then records are sent through the shuffle.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock.graph.kinds import COLUMNAR
from penstock.graph.partitioning import BROADCAST, SAME_KEY

if TYPE_CHECKING:
    from penstock.graph.edge import Edge
    from penstock.graph.job import Job
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
    if any(other.target == edge.target and other.by is BROADCAST for other in job.edges):
        # What comes over its other edges has to meet the same instances.
        said = _said(target.parallelism)
        same = said is not None and _may_have_instances(sender) and _said(sender.parallelism) == said
    else:
        own = _said(target.parallelism) or _said(job.parallelism)
        same = own is None or own == (_said(sender.parallelism) or _said(job.parallelism))
    return Dealing.CHAINED if same else Dealing.IN_TURN


def instances_of(job: Job) -> dict[int, int]:
    """Return how many instances each vertex has that has some of its own; 0 for one in each bucket.

    Such a vertex says so, or something is dealt out to it.
    """
    dealt = {edge.target for edge in job.edges if dealing_of(job, edge) in (Dealing.IN_TURN, Dealing.TO_ALL)}
    return {
        vertex.index: _said(vertex.parallelism) or _said(job.parallelism) or 0
        for vertex in job.vertices
        if _may_have_instances(vertex) and (vertex.parallelism is not None or vertex.index in dealt)
    }


def _may_have_instances(vertex: Vertex) -> bool:
    """Whether a vertex is a plain task: the parts of what keeps state are its keys."""
    return vertex.kind == "task" and not vertex.stateful and not isinstance(vertex.operator, COLUMNAR)


def _said(parallelism: object) -> int | None:
    """Return a number of instances; None when there is none, or what there is cannot be one."""
    return parallelism if isinstance(parallelism, int) else None
