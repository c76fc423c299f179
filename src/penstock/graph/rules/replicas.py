"""bad-k of a job with replicas: what they could not agree on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.dealing import Distribution, distribution_of
from penstock.graph.ends import Sink, Source
from penstock.graph.kinds import NativeTask
from penstock.graph.replication import replication_of

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


_UNSAID = "another process that asks for the same positions gets other records"


def replicas(job: Job) -> Iterator[Problem]:
    """Replicas run the same batches: all must be able to read them, and to tell what came of them."""
    said = replication_of(job)
    if not said.has_replicas:
        return
    yield from _unreadable(job)
    if said.k and not said.held:
        yield from _without_ids(job)


def _unreadable(job: Job) -> Iterator[Problem]:
    for vertex in job.vertices:
        source = vertex.operator
        if isinstance(source, Source) and not source.replicable:
            why = source.not_replicable or _UNSAID
            reason = f"{type(source).__name__} cannot be read by several replicas: {why}"
            message = f"source {vertex.label!r}: {reason}; or run the job with k=0"
            yield Problem("bad-k", message, vertex.label)


def _without_ids(job: Job) -> Iterator[Problem]:
    """The rows that Spark's own vertices give have no order, so that their records can have no ids."""
    for start in job.vertices:
        if not isinstance(start.operator, NativeTask):
            continue
        for sink in _reached_in_memory(job, start):
            if isinstance(sink.operator, Sink) and not sink.operator.transactional:
                kind = type(sink.operator).__name__
                reason = (
                    f"{kind} needs ids of records to tell those of several replicas, and what {start.label!r}"
                    " gives has none: use a sink that takes each record once, such as LogSink or FileSink"
                )
                yield Problem("bad-k", f"sink {sink.label!r}: {reason}", sink.label)


def _reached_in_memory(job: Job, start: Vertex) -> list[Vertex]:
    """Return the sinks that records get to without a shuffle that puts them in order.

    One that gives instances their turns does not: whose turn it is depends on the order.
    """
    found: dict[int, Vertex] = {}
    waiting = [start.index]
    while waiting:
        index = waiting.pop()
        for edge in job.edges:
            target = job.vertices[edge.target]
            if edge.source != index or target.index in found:
                continue
            if distribution_of(job, edge) not in (Distribution.BY_KEY, Distribution.TO_ALL):
                found[target.index] = target
                waiting.append(target.index)
    return [found[index] for index in sorted(found) if found[index].kind == "sink"]
