"""The inputs of watermarks: the sources and earlier results that determine when a window closes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from penstock.graph.graph_algorithms import arcs_of, reachable
from penstock.graph.job import Job
from penstock.graph.tasks import NativeTask
from penstock.graph.vertex import Vertex
from penstock.graph.windows import TimeWindow
from penstock.plan.exchanges import WINDOW_PORT, Channel, Exchange, edges_by


@dataclass(frozen=True)
class TimedVertex:
    """A vertex after the shuffle that has time windows, or from which such a vertex receives records."""

    vertex: int
    sources: tuple[int, ...]
    """The sources and vertices in Spark whose records arrive here without another shuffle."""
    upstream: tuple[int, ...]
    """The vertices after the shuffle whose results arrive here, one batch later."""


def find_timed(
    job: Job, exchanges: tuple[Exchange, ...], closings: Container[tuple[int, int]]
) -> tuple[TimedVertex, ...]:
    """Return the vertices that need a watermark, each after those that its own depends on.

    Records that return through a loop do not hold back a watermark: it would wait for itself.
    """
    keyed = {exchange.target for exchange in exchanges}
    backward = arcs_of(
        len(job.vertices),
        (
            (edge.target, edge.source)
            for edge in edges_by(job, Channel.MEMORY)
            if (edge.source, edge.target) not in closings
            # After the shuffle, a backward path ends at the vertex that sent into the shuffle.
            and edge.target not in keyed
        ),
    )
    found: dict[int, TimedVertex] = {}
    waiting = [
        vertex.index
        for vertex in job.vertices
        if isinstance(vertex.window, TimeWindow) and vertex.index in keyed
    ]
    while waiting:
        index = waiting.pop()
        if index in found:
            continue
        senders = [
            exchange.source
            for exchange in exchanges
            if exchange.target == index and (exchange.source, index) not in closings
        ]
        if job.vertices[index].windowed_source:
            found[index] = TimedVertex(index, (index,), ())
            continue
        origins = reachable(backward, senders)
        sources = [v for v in origins if _enters_python(job.vertices[v])]
        upstream = [v for v in origins if v in keyed]
        found[index] = TimedVertex(index, tuple(sources), tuple(upstream))
        waiting.extend(upstream)
    return tuple(found[index] for index in sorted(found))


def find_multipath_sources(
    job: Job, exchanges: tuple[Exchange, ...], timed: tuple[TimedVertex, ...]
) -> tuple[int, ...]:
    """Return the sources from which a record can reach the same windows along more than one path.

    The copy on one path must not make that on the other late, so such records are processed one by one.
    """
    onward: list[list[int]] = [[] for _ in job.vertices]
    for edge in edges_by(job, Channel.MEMORY):
        if job.vertices[edge.target].kind == "task":
            onward[edge.source].append(edge.target)
    found = set()
    for window in timed:
        senders = [e.source for e in exchanges if e.target == window.vertex and e.target_port != WINDOW_PORT]
        for source in window.sources:
            if _path_count(onward, source, senders) > 1:
                found.add(source)
    return tuple(sorted(found))


def _path_count(onward: list[list[int]], source: int, senders: list[int]) -> int:
    """Count the paths from a source to the senders, up to two."""
    leading = set(reachable(_reversed(onward), senders))
    arrived = [0] * len(onward)
    waiting = [source]
    ways = 0
    while waiting and ways < 2:
        vertex = waiting.pop()
        if vertex not in leading:
            continue
        ways += senders.count(vertex)
        arrived[vertex] += 1
        if arrived[vertex] > 1:  # Reached twice: through a loop, or along two paths.
            return 2
        waiting.extend(onward[vertex])
    return ways


def _reversed(arcs: list[list[int]]) -> list[list[int]]:
    return arcs_of(len(arcs), ((end, start) for start, ends in enumerate(arcs) for end in ends))


def _enters_python(vertex: Vertex) -> bool:
    """Return whether records enter Python at a vertex."""
    return (vertex.kind == "source" and not vertex.window) or isinstance(vertex.operator, NativeTask)
