"""Records of one schema as Arrow columns: values, keys and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.record import Record
from penstock.schema.arrow_arrays import FAULTS, arrow_schema, arrow_type, build_arrays
from penstock.schema.record_schema import KEY, TIME

if TYPE_CHECKING:
    from penstock.schema.record_schema import DataType, Schema


_KEYS = {str, int, float, bool, bytes}
_NONE = type(None)


class Columns:
    """A batch of records of one schema: an Arrow record batch of values, and columns of keys and times."""

    __slots__ = ("_records", "keys", "schema", "times", "values")

    def __init__(
        self, values: Any, keys: Any = None, times: Any = None, schema: Schema | None = None
    ) -> None:
        self.values = values
        """A ``pyarrow.RecordBatch`` with a column for each field of the schema."""
        self.keys = keys
        """A ``pyarrow.Array``, a list if the keys are not of one plain type, or None if there are no keys."""
        self.times = times
        """A ``pyarrow.Array`` of float64 seconds, or None if no record has a time."""
        self.schema = schema
        """The declared schema of the values; None if there is none."""
        self._records: list[Record] | None = None

    @classmethod
    def of(cls, records: list[Record], schema: Schema) -> tuple[Columns, list[tuple[Record, str]]]:
        """Return records as columns, and the records that do not fit the schema with the reason for each."""
        rejected: list[tuple[Record, str]] = []
        try:
            arrays = build_arrays(schema, [record[1] for record in records], strict=True)
        except FAULTS:
            # Some value does not fit, or fits but is an instance of a subclass: check them one by one.
            records, arrays, rejected = _sort_out(records, schema)
            same = False
        else:
            same = schema.cls is None or type(records[0][1]) is schema.cls if records else True
        batch = _batch(arrays, schema)
        keys = _key_column([record[0] for record in records])
        found = cls(batch, keys, _time_column([record[2] for record in records]), schema)
        if same:
            found._records = records
        return found, rejected

    @classmethod
    def from_batch(cls, batch: Any, schema: Schema | None = None) -> Columns:
        """Create columns from a record batch; its columns ``_key`` and ``_ts`` hold the keys and times."""
        names = batch.schema.names
        keys = batch.column(names.index(KEY)) if KEY in names else None
        times = _seconds(batch.column(names.index(TIME))) if TIME in names else None
        return cls(batch.select([name for name in names if name not in (KEY, TIME)]), keys, times, schema)

    def to_batch(self) -> Any:
        """Return a record batch, with ``_key`` if the keys are of one type and ``_ts`` if there are times."""
        batch = self.values
        if self.keys is not None and not isinstance(self.keys, list):
            batch = batch.append_column(KEY, self.keys)
        return batch if self.times is None else batch.append_column(TIME, self.times)

    def with_result(self, batch: Any) -> Columns:
        """Return a function's result as columns; keys and times that it lacks are those of its input."""
        found = Columns.from_batch(batch)
        if len(found) == len(self):
            found.keys = self.keys if found.keys is None else found.keys
            found.times = self.times if found.times is None else found.times
        return found

    def cast(self, schema: Schema) -> tuple[Columns, list[tuple[Record, str]]]:
        """Return the columns cast to a schema, and the records that do not fit it."""
        if self.schema == schema:
            return self, []
        wanted = arrow_schema(schema)
        values = _cast(self.values, wanted)
        if values is None or any(
            values.column(column.name).null_count for column in wanted if not column.nullable
        ):
            return Columns.of(self.records(), schema)
        return Columns(values, self.keys, self.times, schema), []

    def as_struct(self, key: DataType) -> tuple[Any, list[tuple[Record, str]]]:
        """Return an array of structs with ``_key`` and ``_ts``, and the records whose keys do not fit."""
        import pyarrow as pa

        kind = arrow_type(key)
        columns, rejected = self, []
        if self.keys is None:
            keys = pa.nulls(len(self), kind)
        elif not isinstance(self.keys, list) and self.keys.type == kind:
            keys = self.keys
        else:
            reasons = [None if r[0] is None else key.fault(r[0], "its key") for r in self.records()]
            rejected = [(r, reason) for r, reason in zip(self.records(), reasons, strict=True) if reason]
            if rejected:
                good = [r for r, reason in zip(self.records(), reasons, strict=True) if reason is None]
                assert self.schema is not None, "what goes to Spark is typed"
                columns, _ = Columns.of(good, self.schema)
            keys = pa.array(_listed(columns.keys, len(columns)), kind)
        times = pa.nulls(len(columns), pa.float64()) if columns.times is None else columns.times
        arrays = [*columns.values.columns, keys, times]
        return pa.StructArray.from_arrays(arrays, names=[*columns.values.schema.names, KEY, TIME]), rejected

    def select(self, rows: list[int]) -> list[Record]:
        """Return the records of the given rows."""
        if not rows:
            return []
        if self._records is not None:
            return [self._records[row] for row in rows]
        keys = _listed(self.keys, len(self))
        times = _listed(self.times, len(self))
        values = Columns(self.values.take(rows), schema=self.schema)._values()
        return [Record(keys[row], value, times[row]) for row, value in zip(rows, values, strict=True)]

    def halves(self) -> list[Columns]:
        """Return the first half of the rows and the second."""
        middle = len(self) // 2
        return [self._slice(0, middle), self._slice(middle, len(self) - middle)]

    def _slice(self, start: int, count: int) -> Columns:
        keys = self.keys[start : start + count] if self.keys is not None else None
        times = self.times.slice(start, count) if self.times is not None else None
        return Columns(self.values.slice(start, count), keys, times, self.schema)

    def __len__(self) -> int:
        return int(self.values.num_rows)

    def records(self) -> list[Record]:
        """Return the records, created once; each value is a dict or an instance of the dataclass."""
        if self._records is None:
            count = len(self)
            keys = _listed(self.keys, count)
            times = _listed(self.times, count)
            self._records = list(map(Record, keys, self._values(), times))
        return self._records

    def _values(self) -> list[Any]:
        names = self.values.schema.names
        lists = [column.to_pylist() for column in self.values.columns]
        if self.schema is not None and self.schema.positional is not None:
            return list(map(self.schema.positional, *lists))
        rows: Any = zip(*lists, strict=True) if lists else ((),) * len(self)
        plain = [dict(zip(names, row, strict=True)) for row in rows]
        rebuild = self.schema.rebuild if self.schema is not None else None
        return plain if rebuild is None else list(map(rebuild, plain))


def batches_of(result: Any) -> Iterator[Any]:
    """Yield the record batches in the result of a function of columns."""
    import pyarrow as pa

    if result is None:
        return
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    elif isinstance(result, Iterator | list | tuple):
        for part in result:
            yield from batches_of(part)
    else:
        raise TypeError(
            "it must return a pyarrow.RecordBatch, a pyarrow.Table, an iterator of them or None,"
            f" not {type(result).__name__}"
        )


def _cast(batch: Any, wanted: Any) -> Any:
    """Return a record batch cast to the wanted types; None if names differ or values must be checked."""
    import pyarrow as pa

    if set(batch.schema.names) != set(wanted.names) or len(batch.schema) != len(wanted):
        return None
    arrays = []
    for column in wanted:
        array = batch.column(column.name)
        if array.type != column.type:
            wider = _is_wider(array.type, column.type)
            moment = pa.types.is_timestamp(array.type) and pa.types.is_timestamp(column.type)
            if not wider and not (moment and bool(array.type.tz) == bool(column.type.tz)):
                return None
            array = array.cast(column.type)
        arrays.append(array)
    return pa.record_batch(arrays, names=wanted.names)


def _is_wider(given: Any, wanted: Any) -> bool:
    import pyarrow as pa

    integer, floating = pa.types.is_integer, pa.types.is_floating
    if integer(given) and floating(wanted):
        return bool(given.bit_width < wanted.bit_width)
    alike = (integer(given) and integer(wanted)) or (floating(given) and floating(wanted))
    return bool(alike and given.bit_width <= wanted.bit_width)


def _seconds(column: Any) -> Any:
    """Return a column of times, numbers or Arrow timestamps, as seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        utc = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return pc.divide(utc.cast(pa.float64(), safe=False), 1e6)
    return column if column.type == pa.float64() else column.cast(pa.float64(), safe=False)


def _key_column(keys: list[Any]) -> Any:
    found = set(map(type, keys)) - {_NONE}
    if not found:
        return None
    if len(found) == 1 and found <= _KEYS:
        import pyarrow as pa

        try:
            return pa.array(keys)
        except FAULTS:  # Whole numbers too large for a column, text that UTF-8 cannot hold.
            return keys
    return keys


def _time_column(times: list[float | None]) -> Any:
    if set(map(type, times)) <= {_NONE}:
        return None
    import pyarrow as pa

    return pa.array(times, pa.float64())


def _listed(column: Any, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    return column if isinstance(column, list) else column.to_pylist()


def _sort_out(
    records: list[Record], schema: Schema
) -> tuple[list[Record], list[Any], list[tuple[Record, str]]]:
    good: list[Record] = []
    rejected: list[tuple[Record, str]] = []
    for record in records:
        reason = schema.check(record[1])
        if reason is None:
            good.append(record)
        else:
            rejected.append((record, reason))
    try:
        return good, build_arrays(schema, [record[1] for record in good], strict=False), rejected
    except FAULTS:
        # All records pass the check, but Arrow refuses the column: convert them one by one to find which.
        kept = []
        for record in good:
            try:
                build_arrays(schema, [record[1]], strict=False)
                kept.append(record)
            except FAULTS as error:
                rejected.append((record, f"it cannot be converted to columns ({error})"))
        return kept, build_arrays(schema, [record[1] for record in kept], strict=False), rejected


def _batch(arrays: list[Any], schema: Schema) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
