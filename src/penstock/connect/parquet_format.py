"""Parquet files as columns: only those that are needed are read, and no record is made of them here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from penstock.columns import Columns
from penstock.connect.declared import arrow_schema, seconds_of
from penstock.errors import cause_of
from penstock.graph.datatypes import Field
from penstock.graph.ends import Rejected

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 65_536


@dataclass(frozen=True)
class ParquetFormat:
    """How the rows of a Parquet file become records."""

    key: str | None = None
    ts: str | None = None
    schema: tuple[Field, ...] | None = None
    columns: tuple[str, ...] | None = None

    def read(self, file: IO[bytes], name: str) -> Iterator[Columns | Rejected]:
        """Read a file in pieces. One that cannot be read is rejected; what was read of it before stays."""
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
            # Arrow says so of a damaged file too, but only the system gives a number.
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
    >>> seconds(pa.array([1_500, None], pa.timestamp("ms"))).to_pylist()
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
