"""Encode records as one Arrow stream and decode them, types included: 1, 1.0 and True stay distinct.

A column of keys or values whose entries share one simple type is stored in the matching Arrow type. Any
other column is stored as JSON text (see ``tagged_json``), marked in the field's metadata. Pickle is not used:
reading a log never runs code from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import UnstorableValueError, shorten
from penstock.log import tagged_json
from penstock.record import Record
from penstock.schema.arrow_arrays import array_of, numbers_in

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 2048
"""The maximum number of records in a list that a read yields: few enough to stay in the processor's cache."""

_CODEC = b"codec"
_JSON = b"json"
_MIN_COMPRESSED_SIZE = 1 << 16
_NONE = type(None)

# The constructor of a named tuple takes 50 % longer.
_record = partial(tuple.__new__, Record)


def encode(records: Sequence[Record], now: float | None = None) -> pa.Buffer:
    """Encode one or more records as an Arrow stream; records without a time get ``now``.

    >>> [chunk for chunk in decode(encode([Record("a", 1, 0.5), Record("b", None, 1.5)]))]
    [[Record(key='a', value=1, ts=0.5), Record(key='b', value=None, ts=1.5)]]
    """
    import pyarrow as pa

    keys, values, times = zip(*records, strict=True)
    columns = [_column(keys), _column(values), _times(times, now)]
    fields = [
        pa.field(name, array.type, metadata={_CODEC: _JSON} if is_json else None)
        for name, (array, is_json) in zip(("key", "value", "ts"), columns, strict=True)
    ]
    return _stream(pa.RecordBatch.from_arrays([array for array, _ in columns], schema=pa.schema(fields)))


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    import pyarrow as pa

    # For large batches, compression costs no more time than it saves in checksum and write.
    large = batch.nbytes >= _MIN_COMPRESSED_SIZE
    options = pa.ipc.IpcWriteOptions(compression="lz4" if large else None, use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def merge(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Encode the records of several batches as one Arrow stream, in order.

    Batches with equal schemas are concatenated. Otherwise the records are decoded and encoded again, which
    takes many times as long.
    """
    import pyarrow as pa

    schemas = [batch.schema for batch in batches]
    if all(schema.equals(schemas[0], check_metadata=True) for schema in schemas[1:]):
        table = pa.Table.from_batches(batches).combine_chunks()
        return _stream(table.to_batches()[0])
    return encode([record for batch in batches for chunk in decode_batch(batch) for record in chunk])


def check(record: Record) -> None:
    """Raise ``UnstorableValueError`` if a log cannot store a record."""
    key, value, ts = record
    tagged_json.dumps(key)
    tagged_json.dumps(value)
    _seconds(ts)


def open_stream(payload: Any) -> pa.RecordBatch:
    """Return the single batch of an Arrow stream made by ``encode``, without decoding its values."""
    import pyarrow as pa

    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def decode(payload: Any, start: int = 0, stop: int | None = None) -> Iterator[list[Record]]:
    """Yield the records of an Arrow stream from index ``start`` to ``stop``, in lists of up to ``CHUNK``."""
    return decode_batch(open_stream(payload), start, stop)


def decode_batch(batch: pa.RecordBatch, start: int = 0, stop: int | None = None) -> Iterator[list[Record]]:
    """Decode like ``decode``, from an open batch."""
    last = batch.num_rows if stop is None else min(stop, batch.num_rows)
    for first in range(start, last, CHUNK):
        part = batch.slice(first, min(CHUNK, last - first))
        columns = [
            _entries(array, field.metadata) for array, field in zip(part.columns, batch.schema, strict=True)
        ]
        yield list(map(_record, zip(*columns, strict=True)))


def _column(entries: Sequence[Any]) -> tuple[pa.Array, bool]:
    import pyarrow as pa

    kinds = set(map(type, entries))
    kinds.discard(_NONE)
    if not kinds:
        return pa.nulls(len(entries)), False
    if len(kinds) == 1:
        # The large types have no limit of 2 GiB per column, and are as fast to write and read.
        native = {
            str: pa.large_utf8,
            bytes: pa.large_binary,
            int: pa.int64,
            float: pa.float64,
            bool: pa.bool_,
        }
        arrow_type = native.get(kinds.pop())
        if arrow_type is not None:
            try:
                return array_of(entries, arrow_type()), False
            except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
                pass  # an integer over 64 bits or a lone surrogate: JSON text can represent both
    return array_of(list(map(tagged_json.dumps, entries)), pa.large_utf8()), True


def _times(times: Sequence[Any], now: float | None) -> tuple[pa.Array, bool]:
    import pyarrow as pa

    kinds = set(map(type, times))
    if _NONE in kinds and now is not None:
        times = [now if ts is None else ts for ts in times]
    elif kinds == {_NONE}:
        return pa.nulls(len(times)), False
    seconds = times if kinds <= {float, _NONE} else list(map(_seconds, times))
    return array_of(seconds, pa.float64()), False


def _seconds(ts: Any) -> float | None:
    if ts is None:
        return None
    try:
        if isinstance(ts, int | float) and not isinstance(ts, bool):
            return float(ts)
    except OverflowError:
        pass
    raise UnstorableValueError(
        f"a record's ts must be seconds since the epoch as a float, or None, not {shorten(ts):.80}"
    )


def _entries(array: pa.Array, metadata: dict[bytes, bytes] | None) -> list[Any]:
    import pyarrow as pa

    if metadata is not None and metadata.get(_CODEC) == _JSON:
        return tagged_json.loads_all(array.to_pylist())
    if array.null_count == 0 and (pa.types.is_int64(array.type) or pa.types.is_float64(array.type)):
        return numbers_in(array)
    return cast("list[Any]", array.to_pylist())
