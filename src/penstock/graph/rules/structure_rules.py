"""Rules about the structure of the graph.

They concern names, sources and sinks, edges, ports, reachability and limits of cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem, choices, shown
from penstock.graph.edge import BROADCAST, SAME_KEY, Partitioning
from penstock.graph.graph_algorithms import job_arcs, loop_edges, reachable, reversed_arcs
from penstock.graph.vertex import DISCARDED, LATE
from penstock.graph.windows import TimeWindow
from penstock.setting_values import name_fault

if TYPE_CHECKING:
    from penstock.graph.edge import Edge
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def names(job: Job) -> Iterator[Problem]:
    """Names must be unique and valid as names of folders and ZooKeeper nodes."""
    reason = name_fault(job.name)
    if reason is not None:
        yield Problem("bad-name", f"job name {reason}")
    for vertex in job.vertices:
        reason = name_fault(vertex.name)
        if reason is not None:
            yield Problem("bad-name", f"vertex name {reason}", vertex.label)
    counts = Counter(vertex.label for vertex in job.vertices if isinstance(vertex.name, str))
    for name, count in counts.items():
        if count > 1:
            yield Problem("duplicate-name", f"{count} vertices are named {name!r}: rename all but one", name)


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
            reason = f"has an edge from {incoming[vertex.index]!r}: a source has no input"
            yield Problem("source-with-input", f"source {vertex.label!r} {reason}", vertex.label)
        if vertex.kind == "sink" and vertex.index in outgoing:
            reason = f"has an edge to {outgoing[vertex.index]!r}: a sink has no output"
            yield Problem("sink-with-output", f"sink {vertex.label!r} {reason}", vertex.label)


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
    """An edge must have a known partitioning, which is by key if the target keeps state by key."""
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
    """All inputs of a synchronised task must be aligned in the same way, by key or by order."""
    way = target.alignment
    if edge.by is BROADCAST:
        reason = f"{target.label!r} aligns its inputs, so BROADCAST cannot lead into it"
    elif way is not None and edge.by is not way:
        reason = f"{target.label!r} aligns its inputs in one way: all its edges must be {way.name}"
    else:
        return
    yield Problem("bad-partitioning", f"{arrow}: {reason}", target.label, edge.target_port)


def unknown_ports(job: Job) -> Iterator[Problem]:
    """An edge must use declared ports of its vertices."""
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        arrow = f"edge {source.label!r} -> {target.label!r}"
        if source.is_side_port(edge.source_port):
            yield from _useless_side(job, arrow, source, edge.source_port)
        else:
            yield from _unknown_port(arrow, source, "output", edge.source_port, source.outputs)
        yield from _unknown_port(arrow, target, "input", edge.target_port, target.inputs)


def _useless_side(job: Job, arrow: str, vertex: Vertex, port: str) -> Iterator[Problem]:
    """A side port that can never receive a record must not have an edge."""
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
    # No declared port: a sink's output, a source's input or invalid ports, which other rules report.
    if port in declared or not declared:
        return
    if port:
        reason = f"{vertex.label!r} has no {side} port {shown(port)}: it has {choices(declared)}"
    else:
        example = f'{vertex.label}["{declared[0]}"]'
        reason = f"{vertex.label!r} has several {side} ports: choose {choices(declared)}, as in {example}"
    yield Problem("unknown-port", f"{arrow}: {reason}", vertex.label, port)


def unconnected_ports(job: Job) -> Iterator[Problem]:
    """Each declared port must have an edge; otherwise its records would be lost."""
    taken = {(edge.target, "input", edge.target_port) for edge in job.edges}
    taken |= {(edge.source, "output", edge.source_port) for edge in job.edges}
    aside = {e.source for e in job.edges if job.vertices[e.source].is_side_port(e.source_port)}
    for vertex in job.vertices:
        for side, declared in (("input", vertex.inputs), ("output", vertex.outputs)):
            # A vertex whose only port has no edge is reported as unreachable or as a dead end.
            if len(declared) == 1 and not (side == "output" and vertex.index in aside):
                continue
            for port in declared:
                if (vertex.index, side, port) not in taken:
                    reason = f"vertex {vertex.label!r}: {side} port {port!r} has no edge"
                    yield Problem("unconnected-port", reason, vertex.label, port)


def reachability(job: Job) -> Iterator[Problem]:
    """Each vertex must be on a path from a source to a sink."""
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


def cycle_limits(job: Job) -> Iterator[Problem]:
    """A loop must have a limit, because otherwise a record might never leave it."""
    if job.max_iterations is not None:
        return
    reported: set[int] = set()
    for edge in loop_edges(job):
        entry = job.vertices[edge.entry]
        if entry.max_iterations is None and edge.entry not in reported:
            reported.add(edge.entry)
            way = " -> ".join((*edge.cycle, edge.cycle[0]))
            reason = f"the cycle {way} has no limit: set max_iterations on the job or on {entry.label!r}"
            yield Problem("cycle-without-limit", reason, entry.label)
