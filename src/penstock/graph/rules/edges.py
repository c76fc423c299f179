"""foreign-vertex, duplicate-edge, bad-partitioning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.partitioning import BROADCAST, SAME_KEY, Partitioning
from penstock.graph.wording import choices, shown

if TYPE_CHECKING:
    from penstock.graph.edge import Edge
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def foreign_vertices(job: Job) -> Iterator[Problem]:
    """An edge must stay inside its job."""
    for source, target in job.foreign:
        stranger = source if source.job is not job else target
        reason = (
            f"edge {source.label!r} -> {target.label!r}: {stranger.label!r} belongs to "
            f"job {shown(stranger.job.name)}; connect jobs through a log instead"
        )
        yield Problem("foreign-vertex", reason, stranger.label)


def duplicate_edges(job: Job) -> Iterator[Problem]:
    """Two edges between the same ports would send each record twice."""
    counts = Counter((edge.source, edge.source_port, edge.target, edge.target_port) for edge in job.edges)
    for (source, source_port, target, target_port), count in counts.items():
        if count > 1:
            start, end = job.vertices[source].label, job.vertices[target].label
            arrow = f"{start!r} port {source_port!r} -> {end!r} port {target_port!r}"
            yield Problem("duplicate-edge", f"edge {arrow} was added {count} times", start, source_port)


def partitionings(job: Job) -> Iterator[Problem]:
    """An edge must be divided in a known way, and by key where state is kept by key."""
    known = tuple(member.name for member in Partitioning)
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        arrow = f"edge {source.label!r} -> {target.label!r}"
        if not isinstance(edge.by, Partitioning):
            reason = f"by must be a Partitioning ({choices(known)}), not {shown(edge.by)}"
            yield Problem("bad-partitioning", f"{arrow}: {reason}", target.label, edge.target_port)
        elif target.sync:
            yield from _alignment(target, arrow, edge)
        elif target.stateful and edge.by is not SAME_KEY:
            reason = f"{target.label!r} keeps state by key, so the edge must be SAME_KEY, not {edge.by.name}"
            yield Problem("bad-partitioning", f"{arrow}: {reason}", target.label, edge.target_port)


def _alignment(target: Vertex, arrow: str, edge: Edge) -> Iterator[Problem]:
    """The inputs of a synchronised task are aligned by key or by order, all of them in the same way."""
    way = target.alignment
    if edge.by is BROADCAST:
        reason = f"{target.label!r} aligns its inputs, so BROADCAST cannot lead into it"
    elif way is not None and edge.by is not way:
        reason = f"{target.label!r} aligns its inputs in one way: all its edges must be {way.name}"
    else:
        return
    yield Problem("bad-partitioning", f"{arrow}: {reason}", target.label, edge.target_port)
