"""bad-schema, schema-mismatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem, SettingError
from penstock.graph.schema import Schema

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex

_SIDES = ("schema", "input_schema")


def schemas(job: Job) -> Iterator[Problem]:
    """A schema must be readable, and what goes over an edge must fit what its target asks for."""
    for vertex in job.vertices:
        for side in _SIDES:
            yield from _unreadable(vertex, side)
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        given, wanted = schema_of(source, "schema"), schema_of(target, "input_schema")
        reasons = given.mismatches(wanted) if given is not None and wanted is not None else []
        if reasons:
            arrow = f"edge {source.label!r} -> {target.label!r}"
            what = f"what comes out of {source.label!r} does not fit input_schema of {target.label!r}"
            reason = f"{arrow}: {what}: {'; '.join(reasons)}"
            yield Problem("schema-mismatch", reason, target.label, edge.target_port)


def schema_of(vertex: Vertex, side: str) -> Schema | None:
    """Return a declared schema; None when there is none or it cannot be read."""
    given = getattr(vertex, side)
    try:
        return None if given is None else Schema.of(given)
    except SettingError:
        return None


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
