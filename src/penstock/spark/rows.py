"""Rows between the halves of a batch, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.engine.stages import Row

SCHEMA = "bucket int, kind int, data binary"

_BATCH_BYTES = 8 << 20


def to_batches(rows: Iterable[Row]) -> Iterator[Any]:
    """Gather rows into record batches of a few megabytes."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row[2])
        if size >= _BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def from_batches(batches: Iterable[Any]) -> Iterator[Row]:
    """Read rows from record batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(rows: list[Row]) -> Any:
    import pyarrow as pa

    buckets, kinds, data = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(buckets, pa.int32()), pa.array(kinds, pa.int32()), pa.array(data, pa.binary())],
        names=["bucket", "kind", "data"],
    )
