"""Rules about jobs with replicas.

Several processes must be able to read the sources, records must have ids if a sink needs them, and recovery
at the next window must be possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem
from penstock.graph.connector_api import Sink, Source
from penstock.graph.edge import Distribution, distribution_of
from penstock.graph.graph_algorithms import job_arcs, reachable
from penstock.graph.sink_delivery import replicas_of
from penstock.graph.tasks import CombiningTask, NativeTask, StatefulTask
from penstock.graph.windows import EVENT_TIME, CountWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


_DEFAULT_REASON = "another process that asks for the same positions gets other records"


def replicas(job: Job) -> Iterator[Problem]:
    """Sources of a job with replicas must return the same records to every process."""
    said = replicas_of(job)
    if not said.is_replicated:
        return
    yield from _unreadable(job)
    if said.k and not said.publishes_by_primary:
        yield from _without_ids(job)


def _unreadable(job: Job) -> Iterator[Problem]:
    for vertex in job.vertices:
        source = vertex.operator
        if isinstance(source, Source) and not source.replicable:
            why = source.not_replicable or _DEFAULT_REASON
            reason = f"{type(source).__name__} cannot be read by several replicas: {why}"
            message = f"source {vertex.label!r}: {reason}; or run the job with k=0"
            yield Problem("bad-k", message, vertex.label)


def _without_ids(job: Job) -> Iterator[Problem]:
    """Sinks that need record ids cannot follow vertices in Spark, whose rows have no order."""
    for start in job.vertices:
        if not isinstance(start.operator, NativeTask):
            continue
        for sink in _reached_in_memory(job, start):
            if isinstance(sink.operator, Sink) and not sink.operator.transactional:
                kind = type(sink.operator).__name__
                reason = (
                    f"{kind} needs record ids to recognise copies from other replicas, and records of "
                    f"{start.label!r} have none: use a sink that takes each record once, such as LogSink or "
                    "FileSink"
                )
                yield Problem("bad-k", f"sink {sink.label!r}: {reason}", sink.label)


def _reached_in_memory(job: Job, start: Vertex) -> list[Vertex]:
    """Return the sinks that records reach without a shuffle that orders them.

    A shuffle to instances in turn does not order them, because the turn depends on the order.
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


def recovery(job: Job) -> Iterator[Problem]:
    """With recovery='next-window', all state of a job must be in windows of event time."""
    if replicas_of(job).skips_state:
        for vertex, reason in _faults(job):
            yield Problem("bad-recovery", f"{vertex.kind} {vertex.label!r}: {reason}", vertex.label)


def _faults(job: Job) -> Iterator[tuple[Vertex, str]]:
    arcs = job_arcs(job)
    keyed = [vertex for vertex in job.vertices if _is_keyed(job, vertex)]
    behind = set(reachable(arcs, [target for vertex in keyed for target in arcs[vertex.index]]))
    for vertex in job.vertices:
        if vertex.index in reachable(arcs, arcs[vertex.index]):
            reason: str | None = "it is part of a loop"
        else:
            reason = lasting_state(vertex.operator, vertex.window, sync=vertex.sync)
        late = vertex.index in behind and (vertex in keyed or isinstance(vertex.operator, NativeTask))
        if reason is None and late and getattr(vertex.window, "time", None) != EVENT_TIME:
            reason = "it gets results one batch later, and has no window of event time to assign them to"
        if reason is not None:
            yield vertex, f"recovery='next-window' is not possible: {reason}. Use recovery='copy'"


def lasting_state(operator: Any, window: Any, *, sync: bool) -> str | None:
    """Return why the state of a vertex outlives its time windows; None if it does not."""
    if sync:
        return "records wait for records of its other ports"
    if isinstance(window, CountWindow):
        return "a count window does not end with time"
    if isinstance(operator, StatefulTask):
        if not isinstance(window, TimeWindow):
            return "its state is not in windows of time"
        if not isinstance(operator, CombiningTask):
            return "a StatefulTask keeps its state from window to window, only aggregations do not"
    return None


def _is_keyed(job: Job, vertex: Vertex) -> bool:
    """Return whether records reach a vertex through the shuffle."""
    if vertex.windowed_source or vertex.sync:
        return True
    return any(
        distribution_of(job, edge) is not Distribution.CHAINED
        for edge in job.edges
        if edge.target == vertex.index
    )
