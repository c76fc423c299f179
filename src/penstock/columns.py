"""Records with a schema, column by column: how typed records travel between vertices that can use columns."""

from __future__ import annotations

from typing import Any

from penstock.record import Record


class Columns:
    """Many records of one schema: an Arrow record batch of their values, and columns of keys and times."""

    __slots__ = ("_records", "keys", "times", "values")

    def __init__(self, values: Any, keys: Any = None, times: Any = None) -> None:
        self.values = values
        """A ``pyarrow.RecordBatch`` with a column for each field of the schema."""
        self.keys = keys
        """A ``pyarrow.Array``, or None where no record has a key."""
        self.times = times
        """A ``pyarrow.Array`` of float64 seconds, or None where no record has a time."""
        self._records: list[Record] | None = None

    def __len__(self) -> int:
        return int(self.values.num_rows)

    def records(self) -> list[Record]:
        """Return the records, made once; the value of each is a dict of its fields."""
        if self._records is None:
            count = len(self)
            keys = self.keys.to_pylist() if self.keys is not None else [None] * count
            times = self.times.to_pylist() if self.times is not None else [None] * count
            self._records = list(map(Record, keys, self.values.to_pylist(), times))
        return self._records
