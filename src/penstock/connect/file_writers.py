"""Writers of one output file: JSON lines or Parquet."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.columns import Columns
from penstock.connect.value_conversion import arrow_schema, to_json
from penstock.errors import UnstorableValueError, shown
from penstock.graph.connector_api import Reject
from penstock.record import Record
from penstock.schema.data_types import Field

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS = 65_536
"""How many rows of a Parquet file are buffered before they are written."""


class FileWriter(ABC):
    """Writes records to one file. A record that the format cannot store is rejected, or ends the job."""

    def __init__(
        self, path: Path, key_column: str | None, ts_column: str | None, reject: Reject | None
    ) -> None:
        self.path = path
        self.taken = 0
        """How many records were added, including rejected ones."""
        self._key, self._ts = key_column, ts_column
        self._reject = reject

    @abstractmethod
    def add(self, records: list[Record] | Columns) -> None:
        """Add records."""

    @abstractmethod
    def close(self, *, sync: bool) -> bool:
        """Complete the file; return False when no record was written, and then no file exists."""

    def _refuse(self, record: Record, reason: str) -> None:
        if self._reject is None:
            raise UnstorableValueError(reason)
        self._reject(record, reason)

    def _row(self, record: Record) -> dict[str, Any]:
        """Return the columns of a record."""
        row = dict(record.value) if isinstance(record.value, dict) else {"value": record.value}
        for name, part in ((self._key, record.key), (self._ts, record.ts)):
            if name is None:
                continue
            if name in row:
                raise UnstorableValueError(
                    f"the value has a field {name!r}, which is also the name of the key or time column"
                )
            row[name] = part
        return row


class JsonFile(FileWriter):
    """A file with one JSON value per line."""

    _file: Any = None

    def add(self, records: list[Record] | Columns) -> None:
        """Write lines."""
        lines = []
        for record in records.records() if isinstance(records, Columns) else records:
            self.taken += 1
            try:
                plain = self._key is None and self._ts is None
                lines.append(to_json(record.value if plain else self._row(record)) + "\n")
            except UnstorableValueError as error:
                self._refuse(record, str(error))
        if lines:
            if self._file is None:
                self._file = self.path.open("x", encoding="utf-8")
            self._file.write("".join(lines))

    def close(self, *, sync: bool) -> bool:
        """Complete the file."""
        if self._file is None:
            return False
        with self._file:
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        return True


class ParquetRows(FileWriter):
    """A Parquet file. Its schema is given, or inferred from the first records."""

    def __init__(
        self,
        path: Path,
        key_column: str | None,
        ts_column: str | None,
        reject: Reject | None,
        schema: tuple[Field, ...] | None,
        compression: str,
    ) -> None:
        super().__init__(path, key_column, ts_column, reject)
        self._declared = None if schema is None else arrow_schema(schema)
        self._compression = compression
        self._schema: pa.Schema | None = None
        self._names: frozenset[str] = frozenset()
        self._waiting: list[Record] = []
        self._writer: Any = None

    def add(self, records: list[Record] | Columns) -> None:
        """Buffer rows, and write them when the buffer is full."""
        self.taken += len(records)
        if isinstance(records, Columns):
            self._flush()
            batch = self._batch(records)
            if batch is not None:
                self._write(batch)
                return
            records = records.records()
        self._waiting.extend(records)
        if len(self._waiting) >= _ROWS:
            self._flush()

    def close(self, *, sync: bool) -> bool:
        """Complete the file."""
        self._flush()
        if self._writer is None:
            return False
        self._writer.close()
        if sync:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True

    def _batch(self, columns: Columns) -> pa.RecordBatch | None:
        """Convert typed records to this file's schema; None when any of them does not match it."""
        import pyarrow as pa

        arrays = dict(zip(columns.values.schema.names, columns.values.columns, strict=True))
        nothing = pa.nulls(len(columns))
        for name, part in ((self._key, columns.keys), (self._ts, columns.times)):
            if name is not None and name in arrays:
                return None
            if name is not None:
                arrays[name] = nothing if part is None else part
        if self._ts is not None and self._time_is_timestamp():
            arrays[self._ts] = _timestamps(arrays[self._ts])
        if self._schema is None:
            self._set_schema({name: array.type for name, array in arrays.items()})
        assert self._schema is not None
        if not self._names.issuperset(arrays):
            return None
        try:
            converted = [
                arrays[field.name].cast(field.type) if field.name in arrays else nothing.cast(field.type)
                for field in self._schema
            ]
        except pa.ArrowException:
            return None
        if any(a.null_count and not f.nullable for a, f in zip(converted, self._schema, strict=True)):
            return None
        return pa.RecordBatch.from_arrays(converted, schema=self._schema)

    def _flush(self) -> None:
        import pyarrow as pa

        records, self._waiting = self._waiting, []
        rows = []
        kept = []
        for record in records:
            try:
                rows.append(self._row(record))
                kept.append(record)
            except UnstorableValueError as error:
                self._refuse(record, str(error))
        if not rows:
            return
        if self._schema is None:
            self._set_schema(_inferred(rows))
        try:
            self._write(self._convert(rows))
        except (UnstorableValueError, pa.ArrowException, TypeError, ValueError, OverflowError):
            # Some row does not match the schema. Convert rows one by one, and reject only those that fail.
            valid = [row for row, record in zip(rows, kept, strict=True) if self._is_valid(row, record)]
            if valid:
                self._write(self._convert(valid))

    def _row(self, record: Record) -> dict[str, Any]:
        row = super()._row(record)
        for name in row:
            if not isinstance(name, str):
                raise UnstorableValueError(f"{shown(name)} cannot name a column: it is not a string")
        if self._ts is not None and record.ts is not None and self._time_is_timestamp():
            try:
                row[self._ts] = round(record.ts * 1e6)
            except (TypeError, ValueError, OverflowError):
                raise UnstorableValueError(f"{shown(record.ts)} is not a time") from None
        return row

    def _time_is_timestamp(self) -> bool:
        """Return whether the time column holds timestamps: always, unless declared with another type."""
        import pyarrow as pa

        if self._declared is None or self._ts not in self._declared.names:
            return True
        return bool(pa.types.is_timestamp(self._declared.field(self._ts).type))

    def _set_schema(self, types: dict[str, Any]) -> None:
        """Set the schema of the file from the declared one and the given column types."""
        import pyarrow as pa

        fields = [] if self._declared is None else list(self._declared)
        given = {field.name for field in fields}
        key_and_time = (self._key, self._ts)
        for name, kind in types.items():
            if name in given or (self._declared is not None and name not in key_and_time):
                continue
            if name == self._ts:
                fields.append(pa.field(name, pa.timestamp("us", "UTC")))
            else:
                # A column without values has no type, and Parquet cannot store a struct without fields.
                empty = pa.types.is_null(kind) or (pa.types.is_struct(kind) and kind.num_fields == 0)
                fields.append(pa.field(name, pa.string() if empty else kind))
        self._schema = pa.schema(fields)
        self._names = frozenset(self._schema.names)

    def _convert(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        for row in rows:
            if not self._names.issuperset(row):
                unknown = next(name for name in row if name not in self._names)
                raise UnstorableValueError(f"the field {unknown!r} is not in the schema of the file")
        assert self._schema is not None
        arrays = []
        for field in self._schema:
            column = [row.get(field.name) for row in rows]
            if not field.nullable and None in column:
                raise UnstorableValueError(f"the field {field.name!r} is missing")
            try:
                arrays.append(pa.array(column, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UnstorableValueError(
                    f"the field {field.name!r} does not fit {field.type}: {error}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _is_valid(self, row: dict[str, Any], record: Record) -> bool:
        try:
            self._convert([row])
        except UnstorableValueError as error:
            self._refuse(record, str(error))
            return False
        return True

    def _write(self, batch: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, batch.schema, compression=self._compression)
        self._writer.write_batch(batch)


def _inferred(rows: list[dict[str, Any]]) -> dict[str, pa.DataType]:
    """Infer the type of each column: the common type of its values, or else the type of the first one."""
    import pyarrow as pa

    types = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        column = [row[name] for row in rows if row.get(name) is not None]
        try:
            types[name] = pa.array(column).type
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            types[name] = _type_of_first(column)
    return types


def _type_of_first(column: list[Any]) -> pa.DataType:
    import pyarrow as pa

    for value in column:
        try:
            return pa.array([value]).type
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return pa.null()


def _timestamps(array: Any) -> Any:
    """Convert seconds to timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.round(pc.multiply(array.cast(pa.float64()), 1e6)).cast(pa.int64())
    return micros.cast(pa.timestamp("us", "UTC"))
