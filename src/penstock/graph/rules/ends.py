"""no-source, no-sink, source-with-input, sink-with-output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem

if TYPE_CHECKING:
    from penstock.graph.job import Job


def sources_and_sinks(job: Job) -> Iterator[Problem]:
    """A graph begins at sources and ends at sinks (seed 000 IV.A.1: in-degree and out-degree 0)."""
    if not job.sources:
        yield Problem("no-source", "the job has no source: add one with job.source(name, source)")
    if not job.sinks:
        yield Problem("no-sink", "the job has no sink: add one with job.sink(name, sink)")
    incoming: dict[int, str] = {}
    outgoing: dict[int, str] = {}
    for edge in job.edges:
        incoming.setdefault(edge.target, job.vertices[edge.source].label)
        if not job.vertices[edge.source].is_side_port(edge.source_port):
            outgoing.setdefault(edge.source, job.vertices[edge.target].label)
    for vertex in job.vertices:
        if vertex.kind == "source" and vertex.index in incoming:
            reason = f"has an edge from {incoming[vertex.index]!r}: nothing can go into a source"
            yield Problem("source-with-input", f"source {vertex.label!r} {reason}", vertex.label)
        if vertex.kind == "sink" and vertex.index in outgoing:
            reason = f"has an edge to {outgoing[vertex.index]!r}: nothing comes out of a sink"
            yield Problem("sink-with-output", f"sink {vertex.label!r} {reason}", vertex.label)
