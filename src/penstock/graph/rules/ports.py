"""unknown-port, unconnected-port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.cycles import loop_edges
from penstock.graph.vertex import DISCARDED, LATE
from penstock.graph.windows import TimeWindow
from penstock.graph.wording import choices, shown

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def unknown_ports(job: Job) -> Iterator[Problem]:
    """An edge must use ports that its vertices declare."""
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        arrow = f"edge {source.label!r} -> {target.label!r}"
        if source.is_side_port(edge.source_port):
            yield from _useless_side(job, arrow, source, edge.source_port)
        else:
            yield from _unknown_port(arrow, source, "output", edge.source_port, source.outputs)
        yield from _unknown_port(arrow, target, "input", edge.target_port, target.inputs)


def _useless_side(job: Job, arrow: str, vertex: Vertex, port: str) -> Iterator[Problem]:
    """A side stream that can never get a record is a mistake in the graph."""
    reason = None
    if port == LATE and not isinstance(vertex.window, TimeWindow):
        reason = f"{vertex.label!r} has no window of time, so no record is ever late for it"
    elif port == DISCARDED and all(edge.entry != vertex.index for edge in loop_edges(job)):
        reason = f"{vertex.label!r} is not the entry of a loop, so no record is discarded there"
    if reason:
        yield Problem("unknown-port", f"{arrow}: {reason}", vertex.label, port)


def _unknown_port(
    arrow: str, vertex: Vertex, side: str, port: str, declared: tuple[str, ...]
) -> Iterator[Problem]:
    # Nothing declared: a sink's output, a source's input or unreadable ports, each reported as such.
    if port in declared or not declared:
        return
    if port:
        reason = f"{vertex.label!r} has no {side} port {shown(port)}: it has {choices(declared)}"
    else:
        example = f'{vertex.label}["{declared[0]}"]'
        reason = f"{vertex.label!r} has several {side} ports: choose {choices(declared)}, as in {example}"
    yield Problem("unknown-port", f"{arrow}: {reason}", vertex.label, port)


def unconnected_ports(job: Job) -> Iterator[Problem]:
    """Each declared port must have an edge; a record sent to nowhere is a mistake in the graph."""
    taken = {(edge.target, "input", edge.target_port) for edge in job.edges}
    taken |= {(edge.source, "output", edge.source_port) for edge in job.edges}
    aside = {e.source for e in job.edges if job.vertices[e.source].is_side_port(e.source_port)}
    for vertex in job.vertices:
        for side, declared in (("input", vertex.inputs), ("output", vertex.outputs)):
            # A vertex whose only port has no edge is unreachable or a dead end, and reported as that.
            if len(declared) == 1 and not (side == "output" and vertex.index in aside):
                continue
            for port in declared:
                if (vertex.index, side, port) not in taken:
                    reason = f"vertex {vertex.label!r}: {side} port {port!r} has no edge"
                    yield Problem("unconnected-port", reason, vertex.label, port)
