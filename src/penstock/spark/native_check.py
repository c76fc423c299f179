"""Checks the vertices that Spark runs itself before a job starts, and determines their output schemas.

Each is applied to an empty stream. Spark then reports errors of the query and the columns of its result, and
the query plan shows whether the result would depend on how the stream is divided into batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from penstock.engine.blueprint import Blueprint, VertexSpec
from penstock.errors import GraphError, Problem, SettingError, cause_of
from penstock.graph.tasks import Sql
from penstock.schema.data_types import Field, StructType
from penstock.schema.ddl_parser import read_fields
from penstock.schema.record_schema import KEY, TIME, Schema
from penstock.spark.native_frames import make_frame, with_ends
from penstock.spark.spark_failures import sentence
from penstock.spark.spark_output import quiet

_COUNT = "use ps.Count(), ps.Reduce or another stateful task, with a window if results should end"
_ADVICE = {
    "Aggregate": ("aggregates", _COUNT),
    "Distinct": ("removes duplicates", "use a stateful task by key"),
    "Deduplicate": ("removes duplicates", "use a stateful task by key"),
    "DeduplicateWithinWatermark": ("removes duplicates", "use a stateful task by key"),
    "Sort": ("sorts", "sort the output of the sink"),
    "GlobalLimit": ("limits the number of rows", "use a count window"),
    "LocalLimit": ("limits the number of rows", "use a count window"),
    "Offset": ("skips rows", "filter by a column"),
    "Tail": ("limits the number of rows", "use a count window"),
    "Window": ("uses a window function", "use a stateful task by key"),
    "Intersect": ("compares its rows with one another", "use a stateful task by key"),
    "Except": ("compares its rows with one another", "use a stateful task by key"),
    "Join": (
        "joins its input with earlier input",
        "use a task with sync ports, or a stateful task by key",
    ),
}
_GROUPED = ("FlatMapGroups", "FlatMapCoGroups", "MapGroups", "CoGroup", "TransformWithState", "AppendColumns")


def check_natives(session: Any, blueprint: Blueprint) -> None:
    """Raise GraphError with all problems of the vertices that Spark runs, if there are any."""
    with tempfile.TemporaryDirectory(prefix="penstock-check-") as folder, quiet():
        checker = _Checker(session, blueprint, folder)
        problems = [problem for vertex in blueprint.plan.native.order for problem in checker.check(vertex)]
    if problems:
        raise GraphError(blueprint.job, problems)


class _Checker:
    def __init__(self, session: Any, blueprint: Blueprint, folder: str) -> None:
        self._session = session.newSession()
        self._blueprint = blueprint
        self._plan = blueprint.plan
        self._folder = folder
        self._given: dict[int, Any] = {}
        """The Spark schema of each vertex's result."""

    def check(self, vertex: int) -> Iterator[Problem]:
        spec = self._blueprint.vertices[vertex]
        frames = {port: self._input(vertex, port) for port in spec.inputs}
        if any(frame is None for frame in frames.values()):
            return  # A problem of the preceding vertex has been reported.
        where = f"task {spec.name!r}"
        code = "bad-sql" if isinstance(spec.operator, Sql) else "bad-task"
        try:
            frame = make_frame(self._session, spec, frames)
            analyzed = frame._jdf.queryExecution().analyzed()
        except Exception as error:
            reason = sentence(error) if hasattr(error, "getCondition") else cause_of(error)
            if isinstance(getattr(error, "name", None), str) and "_jdf" in str(error):
                reason = "it must return a DataFrame"
            yield Problem(code, f"{where}: {reason}", spec.name)
            return
        for reason in dict.fromkeys(_obstacles(analyzed)):
            yield Problem(code, f"{where}: {reason}", spec.name)
        reasons = list(self._columns(spec, frame.schema))
        for problem, reason in reasons:
            yield Problem(problem, f"{where}: {reason}", spec.name)
        if not any(problem == code for problem, _ in reasons):
            self._given[vertex] = frame.schema

    def _input(self, vertex: int, port: str) -> Any:
        for slot in self._plan.native.slots:
            if (slot.vertex, slot.port) == (vertex, port):
                fields = [Field(field.name, field.type) for field in slot.schema.fields]
                ends = read_fields(f"{KEY} {slot.key}, {TIME} double")
                return self._stream(Schema(StructType((*fields, *ends))).ddl)
        senders = [
            sender
            for (sender, _), hops in self._plan.hops.items()
            if any((hop.target, hop.port) == (vertex, port) for hop in hops)
        ]
        frames = [with_ends(self._stream(self._given[sender])) for sender in senders if sender in self._given]
        if not frames or len(frames) < len(senders):
            return None
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _stream(self, schema: Any) -> Any:
        return self._session.readStream.schema(schema).format("parquet").load(self._folder)

    def _columns(self, spec: VertexSpec, schema: Any) -> Iterator[tuple[str, str]]:
        code = "bad-sql" if isinstance(spec.operator, Sql) else "bad-task"
        names = [field.name for field in schema.fields]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield code, f"its result has two columns {name!r}: name them differently with AS"
        time = next(
            (field.dataType.simpleString() for field in schema.fields if field.name == TIME), "double"
        )
        if time not in ("double", "float", "int", "bigint", "timestamp", "void"):
            yield code, f"{TIME} of its result must be a number of seconds or a timestamp, not {time}"
        values = [field for field in schema.fields if field.name not in (KEY, TIME)]
        if not values:
            yield code, "its result has no columns beside the key and the time"
        elif spec.schema is not None and len(set(names)) == len(names):
            yield from self._mismatches(spec, values)

    def _mismatches(self, spec: VertexSpec, values: list[Any]) -> Iterator[tuple[str, str]]:
        from pyspark.sql.types import StructType as SparkStruct

        wanted = spec.schema
        assert wanted is not None
        try:
            given = Schema.of(SparkStruct(values).toDDL())
        except SettingError as error:
            yield "schema-mismatch", f"its result cannot be compared with its schema: {error}"
            return
        # Spark declares almost every column nullable; nulls are checked in the data.
        loose = StructType(tuple(Field(f.name, f.type, True, f.optional) for f in wanted.fields), wanted.cls)
        reasons = Schema(StructType(tuple(Field(f.name, f.type) for f in given.fields))).struct.mismatches(
            loose
        )
        if reasons:
            yield "schema-mismatch", f"its result does not fit its schema: {'; '.join(reasons)}"


def _obstacles(plan: Any) -> Iterator[str]:
    """Yield why the result of a plan depends on how its unbounded input is divided into batches."""
    children = plan.children()
    streams = [child for child in map(children.apply, range(children.size())) if child.isStreaming()]
    name = plan.nodeName()
    needed = 2 if name == "Join" else 1
    if len(streams) >= needed and (name in _ADVICE or name.startswith(_GROUPED)):
        what, advice = _ADVICE.get(name, ("groups its rows", _COUNT))
        yield f"it {what} within a batch, so results would depend on the division into batches: {advice}"
    for child in streams:
        yield from _obstacles(child)
