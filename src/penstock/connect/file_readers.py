"""Reads one file as records or columns: lines, CSV, JSON lines, Parquet.

Input that cannot be read is rejected with file and line.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NoReturn

from penstock.columns import Columns
from penstock.connect.value_conversion import arrow_schema, convert_fields, seconds_of
from penstock.errors import cause_of
from penstock.graph.connector_api import Rejected
from penstock.record import Record
from penstock.schema.data_types import Field

if TYPE_CHECKING:
    import pyarrow as pa


CHUNK = 2048
"""Maximum number of records in a list."""

_BLOCK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_MAX_REJECTED = 1 << 16
"""Maximum number of characters or bytes kept of a rejected line."""

Unreadable = (gzip.BadGzipFile, EOFError, zlib.error)
Values = Iterator[tuple[int, str | bytes, Any, str | None]]
"""A line number, the text there, and its value or the reason for its rejection."""


@dataclass(frozen=True)
class TextFormat:
    """Settings by which the lines of a file are converted to records."""

    format: str
    key: str | Callable[[Any], Any] | None = None
    ts: str | Callable[[Any], Any] | None = None
    schema: tuple[Field, ...] | None = None
    columns: tuple[str, ...] | None = None
    header: bool = True
    separator: str = ","

    def read(self, file: IO[bytes], name: str) -> Iterator[list[Record] | Rejected]:
        """Read a file; ``name`` identifies it in reasons for rejection."""
        stream: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        reader = {"lines": _lines, "json": self._json, "csv": self._csv}[self.format]
        records: list[Record] = []
        pieces: list[tuple[Any, str]] = []
        try:
            for line, raw, value, reason in reader(stream):
                why = reason
                if why is None:
                    try:
                        records.append(self._record(value))
                    except ValueError as error:
                        why = str(error)
                if why is not None:
                    pieces.append((raw[:_MAX_REJECTED], f"{name}, line {line}: {why}"))
                if len(records) + len(pieces) >= CHUNK:
                    yield from _results(records, pieces)
                    records, pieces = [], []
        except Unreadable as error:
            pieces.append((name, f"{name} cannot be read to its end: {cause_of(error)}"))
        yield from _results(records, pieces)

    def _record(self, value: Any) -> Record:
        if self.key is None and self.ts is None:
            return Record(None, self._project(value), None)
        key = None if self.key is None else _select(self.key, "key", value)
        ts = None if self.ts is None else seconds_of(_select(self.ts, "ts", value))
        return Record(key, self._project(value), ts)

    def _project(self, value: Any) -> Any:
        if self.columns is None:
            return value
        return {name: _field(value, name) for name in self.columns}

    def _json(self, file: Any) -> Values:
        for number, line in _raw_lines(file):
            text: str | bytes = line
            try:
                text = line.decode()
                if not text or text.isspace():
                    continue
                value = _decode(text)
                yield number, text, value if self.schema is None else convert_fields(value, self.schema), None
            except UnicodeDecodeError:
                yield number, text, None, "not UTF-8"
            except json.JSONDecodeError as error:
                yield number, text, None, f"not JSON: {error.msg} at column {error.colno}"
            except RecursionError:
                yield number, text, None, "nested too deeply"
            except ValueError as error:
                yield number, text, None, str(error)

    def _csv(self, file: Any) -> Values:
        lines = _RecordingLines(file)
        rows = csv.reader(lines, delimiter=self.separator, strict=True)
        names: Sequence[str] | None = None
        if not self.header:
            assert self.schema is not None
            names = [column.name for column in self.schema]
        while True:
            first = lines.number + 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield first, lines.take_text(), None, f"not CSV: {error}"
                continue
            broken, raw = lines.broken, lines.take_text()
            if row is None:
                return
            if not row:
                continue
            if broken:
                yield first, raw, None, "not UTF-8"
            elif names is None:
                names = row
                if wrong := self._wrong_header(names):
                    yield first, raw, None, f"{wrong}, so this file is not read"
                    return
            elif len(row) != len(names):
                yield first, raw, None, f"{len(row)} fields, not {len(names)}"
            else:
                value: Any = dict(zip(names, row, strict=True))
                try:
                    yield (
                        first,
                        raw,
                        value if self.schema is None else convert_fields(value, self.schema),
                        None,
                    )
                except ValueError as error:
                    yield first, raw, None, str(error)

    def _wrong_header(self, names: Sequence[str]) -> str | None:
        if len(set(names)) < len(names):
            return "two columns have the same name"
        wanted = [column.name for column in self.schema or ()]
        wanted += [name for name in (self.key, self.ts, *(self.columns or ())) if isinstance(name, str)]
        missing = next((name for name in wanted if name not in names), None)
        return None if missing is None else f"there is no column {missing!r}"


def _results(records: list[Record], pieces: list[tuple[Any, str]]) -> Iterator[list[Record] | Rejected]:
    if records:
        yield records
    if pieces:
        yield Rejected(pieces)


def _raw_lines(file: Any) -> Iterator[tuple[int, bytes]]:
    number = 0
    while block := file.readlines(_BLOCK):
        if number == 0:
            block[0] = block[0].removeprefix(_BOM)
        for line in block:
            number += 1
            yield number, line.rstrip(b"\r\n")


def _lines(file: Any) -> Values:
    for number, line in _raw_lines(file):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            yield number, line, None, "not UTF-8"
            continue
        yield number, text, text, None


class _RecordingLines:
    """Iterates over the lines of a file as text, and records the lines that the current row consists of."""

    def __init__(self, file: Any) -> None:
        self._lines = iter(file)
        self._recorded: list[str] = []
        self.number = 0
        self.broken = False

    def __iter__(self) -> _RecordingLines:
        return self

    def __next__(self) -> str:
        raw = next(self._lines)
        if self.number == 0:
            raw = raw.removeprefix(_BOM)
        self.number += 1
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line, self.broken = raw.decode(errors="replace"), True
        self._recorded.append(line)
        return str(line)

    def take_text(self) -> str:
        """Return the text read since the last call, and start recording again."""
        text, self._recorded, self.broken = "".join(self._recorded), [], False
        return text.rstrip("\r\n")


def _select(selector: str | Callable[[Any], Any], option: str, value: Any) -> Any:
    if isinstance(selector, str):
        return _field(value, selector)
    try:
        return selector(value)
    except Exception as error:
        raise ValueError(f"the function for {option} raised {cause_of(error)}") from None


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise ValueError(f"there is no field {name!r}")
    return value[name]


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Created once, because json.loads would create a decoder for each line.
_decode = json.JSONDecoder(parse_constant=_reject_constant).decode


_ROWS = 65_536


@dataclass(frozen=True)
class ParquetFormat:
    """Settings by which the rows of a Parquet file are converted to records."""

    key: str | None = None
    ts: str | None = None
    schema: tuple[Field, ...] | None = None
    columns: tuple[str, ...] | None = None

    def read(self, file: IO[bytes], name: str) -> Iterator[Columns | Rejected]:
        """Read a file in batches. A file that cannot be read is rejected; batches read before are kept."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file) as opened:
                present = opened.schema_arrow.names
                wanted = self._wanted(present)
                needed = list(dict.fromkeys([*wanted, *(n for n in (self.key, self.ts) if n is not None)]))
                missing = next((column for column in needed if column not in present), None)
                if missing is not None:
                    yield Rejected([(name, f"{name}: there is no column {missing!r}")])
                    return
                for batch in opened.iter_batches(batch_size=_ROWS, columns=needed):
                    yield self._columns(batch, wanted)
        except (pa.ArrowException, ValueError) as error:
            yield Rejected([(name, f"{name} cannot be read: {cause_of(error)}")])
        except OSError as error:
            # Arrow raises OSError for a damaged file too, but without the errno of a system error.
            if error.errno is not None:
                raise
            yield Rejected([(name, f"{name} cannot be read: {cause_of(error)}")])

    def _wanted(self, present: list[str]) -> list[str]:
        if self.columns is not None:
            return list(self.columns)
        return present if self.schema is None else [column.name for column in self.schema]

    def _columns(self, batch: pa.RecordBatch, wanted: list[str]) -> Columns:
        values = batch.select(wanted)
        if self.schema is not None:
            values = values.cast(arrow_schema(tuple(c for c in self.schema if c.name in wanted)))
        keys = None if self.key is None else _plain(batch.column(self.key))
        times = None if self.ts is None else time_column_seconds(batch.column(self.ts))
        return Columns(values, keys, times)


def _plain(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def time_column_seconds(array: pa.Array) -> pa.Array:
    """Return a column of times as seconds since the epoch.

    >>> import pyarrow as pa
    >>> time_column_seconds(pa.array([1_500, None], pa.timestamp("ms"))).to_pylist()
    [1.5, None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _plain(array)
    kind: Any = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
        if pa.types.is_date(kind):
            array = array.cast(pa.timestamp("s"))
        unit = array.type.unit
        return pc.divide(array.cast(pa.int64()).cast(pa.float64(), safe=False), float(per_second[unit]))
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not pa.types.is_boolean(kind):
        return array.cast(pa.float64(), safe=False)
    return pa.array([seconds_of(value) for value in array.to_pylist()], pa.float64())
