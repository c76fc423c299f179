"""Rules about schemas.

Declarations must be readable, both ends of an edge must fit, and vertices on columns must know their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem, SettingError
from penstock.graph.edge import ROUND_ROBIN
from penstock.graph.graph_algorithms import closing_arcs, job_arcs, loop_members
from penstock.graph.tasks import COLUMNAR_TASKS, ArrowTask, NativeTask
from penstock.graph.vertex import columns_of, schema_of
from penstock.schema.record_schema import Schema

if TYPE_CHECKING:
    from penstock.graph.edge import Edge
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


_SIDES = ("schema", "input_schema")


def schemas(job: Job) -> Iterator[Problem]:
    """A schema must be readable, and the schema of an edge must fit the input schema of its target."""
    for vertex in job.vertices:
        for side in _SIDES:
            yield from _unreadable(vertex, side)
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        given, wanted = schema_of(source, "schema"), schema_of(target, "input_schema")
        reasons = given.mismatches(wanted) if given is not None and wanted is not None else []
        if reasons:
            arrow = f"edge {source.label!r} -> {target.label!r}"
            what = f"the schema of {source.label!r} does not fit input_schema of {target.label!r}"
            reason = f"{arrow}: {what}: {'; '.join(reasons)}"
            yield Problem("schema-mismatch", reason, target.label, edge.target_port)


def _unreadable(vertex: Vertex, side: str) -> Iterator[Problem]:
    given = getattr(vertex, side)
    if given is None:
        return
    try:
        Schema.of(given)
    except SettingError as error:
        text = str(error)
        reason = text if text.startswith(f"{side} ") else f"{side}: {text.removeprefix('schema ')}"
        yield Problem("bad-schema", f"{vertex.kind} {vertex.label!r}: {reason}", vertex.label)


def columnar_vertices(job: Job) -> Iterator[Problem]:
    """Vertices on columns must know their types, and vertices in Spark cannot be part of a loop."""
    for edge in job.edges:
        target = job.vertices[edge.target]
        if isinstance(target.operator, COLUMNAR_TASKS):
            yield from _edge(job, edge, target)
    looped = _looped(job)
    for vertex in job.vertices:
        where = f"{vertex.kind} {vertex.label!r}"
        if isinstance(vertex.operator, NativeTask) and vertex.index in looped:
            reason = "Spark runs it for a whole batch at a time, so it cannot be part of a loop"
            yield Problem("unsupported", f"{where}: {reason}: use a function or a ps.ArrowTask", vertex.label)
        if isinstance(vertex.operator, COLUMNAR_TASKS) and vertex.window is not None:
            reason = "it works on batches of columns, not on windows: remove window"
            yield Problem("unsupported", f"{where}: {reason}", vertex.label)


def _edge(job: Job, edge: Edge, target: Vertex) -> Iterator[Problem]:
    source = job.vertices[edge.source]
    arrow = f"edge {source.label!r} -> {target.label!r}"
    if source.is_side_port(edge.source_port):
        reason = f"records of {edge.source_port!r} have no schema: add a function between the two"
        yield Problem("no-schema", f"{arrow}: {reason}", target.label, edge.target_port)
        return
    name = type(target.operator).__name__
    if edge.by is not ROUND_ROBIN:
        reason = f"{name} has no instances to choose from, so the edge must be ROUND_ROBIN"
        yield Problem("bad-partitioning", f"{arrow}: {reason}", target.label, edge.target_port)
    if source.kind == "source" and source.window is not None:
        reason = f"{name} takes columns, and {source.label!r} gives windows of records"
        yield Problem("unsupported", f"{arrow}: {reason}", target.label, edge.target_port)
    if target.input_schema is not None or source.schema is not None or _knows_its_columns(source, target):
        given, port = columns_of(source), _port_schema(job, target, edge.target_port)
        if given is not None and port is not None and target.input_schema is None:
            for reason in given.mismatches(port):
                others = f"the schema of {source.label!r} differs from those of the port's other edges"
                message = f"{arrow}: {others}: {reason}"
                yield Problem("schema-mismatch", message, target.label, edge.target_port)
        return
    reason = f"{name} works on columns, and their schema is not declared"
    advice = f"declare schema= on {source.label!r} or input_schema= on {target.label!r}"
    yield Problem("no-schema", f"{arrow}: {reason}: {advice}", target.label, edge.target_port)


def _knows_its_columns(source: Vertex, target: Vertex) -> bool:
    """Return whether column types are known without a declaration: they are between vertices in Spark, and
    between Arrow tasks, whose batches contain them."""
    if isinstance(source.operator, ArrowTask):
        return isinstance(target.operator, ArrowTask)
    return isinstance(source.operator, NativeTask) or columns_of(source) is not None


def _port_schema(job: Job, target: Vertex, port: str) -> Schema | None:
    """Return the schema of a port without input_schema: that of its first edge."""
    for edge in job.edges:
        if edge.target == target.index and edge.target_port == port:
            return columns_of(job.vertices[edge.source])
    return None


def _looped(job: Job) -> set[int]:
    arcs = job_arcs(job)
    entries = {entry for _, entry, _ in closing_arcs(arcs)}
    return {member for entry in entries for member in loop_members(arcs, entry)}
