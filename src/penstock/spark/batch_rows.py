"""Rows between the stages of a batch.

Converts rows to Arrow batches and back, and collects them from Spark with a check that all have arrived.
PySpark's own ``collect`` does not notice a truncated stream. Therefore Java is asked how sending ended, and
Spark counts the rows while it computes them if their number does not follow from the plan.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.engine.execution.batch_stages import NATIVE, Row
from penstock.errors import IncompleteBatchError, cause_of
from penstock.plan.native_vertices import NativePlan, Slot
from penstock.schema.arrow_arrays import array_of, arrow_type
from penstock.schema.data_types import Field, PlainType, StructType
from penstock.schema.ddl_parser import read_type
from penstock.schema.record_schema import KEY, TIME
from penstock.spark.spark_failures import is_java_lost, transient_reason

SCHEMA = "slot int, kind int, data binary"

_BATCH_BYTES = 8 << 20


def row_schema(plan: NativePlan) -> str:
    """Return the schema of rows with records for vertices in Spark, one column for each slot."""
    slots = [f"n{number} {_struct(slot).ddl}" for number, slot in enumerate(plan.slots)]
    return ", ".join([SCHEMA, *slots])


def to_batches(rows: Iterable[Row], plan: NativePlan | None = None) -> Iterator[Any]:
    """Combine rows into record batches of a few megabytes."""
    slots = [arrow_type(_struct(slot)) for slot in plan.slots] if plan is not None else []
    waiting: list[Row] = []
    size = 0
    for row in rows:
        if row[1] == NATIVE:
            yield _native_batch(row, slots)
            continue
        waiting.append(row)
        size += len(row[2])
        if size >= _BATCH_BYTES:
            yield _batch(waiting, slots)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, slots)


def from_batches(batches: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows of record batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _struct(slot: Slot) -> StructType:
    """Return a slot's type, with all fields nullable for Spark: nulls have been checked before."""
    fields = [Field(field.name, field.type) for field in slot.schema.fields]
    return StructType((*fields, Field(KEY, read_type(slot.key)), Field(TIME, PlainType("double"))))


def _batch(rows: list[Row], slots: list[Any]) -> Any:
    import pyarrow as pa

    places, kinds, data = zip(*rows, strict=True)
    columns = [
        array_of(places, pa.int32()),
        array_of(kinds, pa.int32()),
        array_of(data, pa.binary()),
    ]
    return _with_slots(columns, [pa.nulls(len(rows), kind) for kind in slots])


def _native_batch(row: Row, slots: list[Any]) -> Any:
    import pyarrow as pa

    number, kind, structs = row
    count = len(structs)
    columns = [
        array_of([number] * count, pa.int32()),
        array_of([kind] * count, pa.int32()),
        pa.nulls(count, pa.binary()),
    ]
    return _with_slots(
        columns, [structs if place == number else pa.nulls(count, slot) for place, slot in enumerate(slots)]
    )


def _with_slots(columns: list[Any], slots: list[Any]) -> Any:
    import pyarrow as pa

    names = ["slot", "kind", "data", *(f"n{number}" for number in range(len(slots)))]
    return pa.record_batch([*columns, *slots], names=names)


def collect_rows(frame: Any, job: str, batch: int, *, counted: bool = False) -> list[Row]:
    """Return all rows of a frame; raises IncompleteBatchError if some did not arrive.

    With ``counted``, Spark counts the rows independently of the stream that carries them.
    """
    from pyspark.serializers import BatchedSerializer, CPickleSerializer
    from pyspark.sql import Observation, functions
    from pyspark.util import _load_from_socket

    serializer = BatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]
    expected = Observation() if counted else None
    if expected is not None:
        frame = frame.observe(expected, functions.count(functions.lit(1)).alias("rows"))
    served = frame._jdf.collectToPython()
    try:
        with _load_from_socket(served, serializer) as stream:
            rows = [(slot, kind, data) for slot, kind, data in stream]
    except (struct.error, EOFError, OSError) as cut:
        raise IncompleteBatchError(job, batch, f"the result was truncated: {cause_of(cut)}") from cut
    _check_sent(served[2], job, batch)
    if expected is not None and expected.get["rows"] != len(rows):
        reason = f"{len(rows)} of {expected.get['rows']} rows of the result arrived"
        raise IncompleteBatchError(job, batch, reason)
    return rows


def _check_sent(server: Any, job: str, batch: int) -> None:
    """Raise IncompleteBatchError if the Java thread that sent the rows has failed."""
    try:
        server.getResult()
    except Exception as error:
        if is_java_lost(error) or transient_reason(error) is not None:
            raise
        raise IncompleteBatchError(
            job, batch, f"Java could not send the result: {cause_of(error)}"
        ) from error
