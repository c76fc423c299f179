"""Rows between the halves of a batch, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.arrays import arrow_type
from penstock.arrow_values import array_of
from penstock.columns import KEY, TIME
from penstock.engine.stages import NATIVE, Row
from penstock.graph.datatypes import Field, PlainType, StructType
from penstock.graph.ddl import read_type
from penstock.plan.natives import NativePlan, Slot

SCHEMA = "bucket int, kind int, data binary"

_BATCH_BYTES = 8 << 20


def row_schema(plan: NativePlan) -> str:
    """Return the schema of rows that carry records for vertices of Spark's own, a column for each slot."""
    slots = [f"n{number} {_struct(slot).ddl}" for number, slot in enumerate(plan.slots)]
    return ", ".join([SCHEMA, *slots])


def to_batches(rows: Iterable[Row], plan: NativePlan | None = None) -> Iterator[Any]:
    """Gather rows into record batches of a few megabytes."""
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
    """Read rows from record batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _struct(slot: Slot) -> StructType:
    """All of a slot's fields may be null for Spark: what must not be has been checked before."""
    fields = [Field(field.name, field.type) for field in slot.schema.fields]
    return StructType((*fields, Field(KEY, read_type(slot.key)), Field(TIME, PlainType("double"))))


def _batch(rows: list[Row], slots: list[Any]) -> Any:
    import pyarrow as pa

    buckets, kinds, data = zip(*rows, strict=True)
    columns = [
        array_of(buckets, pa.int32()),
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

    names = ["bucket", "kind", "data", *(f"n{number}" for number in range(len(slots)))]
    return pa.record_batch([*columns, *slots], names=names)
