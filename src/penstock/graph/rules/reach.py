"""unreachable, dead-end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.cycles import job_arcs
from penstock.graph.traversal import reachable, reversed_arcs

if TYPE_CHECKING:
    from penstock.graph.job import Job


def reachability(job: Job) -> Iterator[Problem]:
    """Each vertex must lie on a way from a source to a sink."""
    arcs = job_arcs(job)
    sources = [vertex.index for vertex in job.vertices if vertex.kind == "source"]
    fed = set(reachable(arcs, sources))
    sinks = [vertex.index for vertex in job.vertices if vertex.kind == "sink"]
    drained = set(reachable(reversed_arcs(arcs), sinks))
    for vertex in job.vertices:
        what = f"{vertex.kind} {vertex.label!r}"
        if vertex.index not in fed:
            yield Problem("unreachable", f"{what} is not reachable from any source", vertex.label)
        if vertex.index not in drained:
            yield Problem("dead-end", f"{what} does not lead to any sink", vertex.label)
