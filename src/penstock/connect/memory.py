"""Records from a list and records to a list: for tests, notebooks and first steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.connect import checking
from penstock.errors import SettingError
from penstock.graph.ends import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.graph.record_ids import RecordIds
from penstock.graph.wording import shown
from penstock.record import Record, as_record

_CHUNK = 2048


class MemorySource(Source):
    """Reads a list of items: values, ``(key, value)`` pairs or records.

    The list is gone when the program ends, so a job with such a source starts anew each time. Item ``i``
    belongs to partition ``i % partitions``, however batches are cut.
    """

    bounded = True
    durable = False

    def __init__(
        self, items: Iterable[Any] = (), *, partitions: int = 1, max_records_per_batch: int | None = None
    ) -> None:
        checking.check_whole_number("MemorySource", "partitions", partitions)
        checking.check_whole_number(
            "MemorySource", "max_records_per_batch", max_records_per_batch, optional=True
        )
        if not isinstance(items, Iterable):
            raise SettingError(f"MemorySource: items takes a list or another iterable, not {shown(items)}")
        self.records = [as_record(item) for item in items]
        self.partitions = partitions
        self.max_records_per_batch = max_records_per_batch

    def begin(self) -> Position:
        """Start before the first item."""
        return {"0": 0}

    def latest(self, after: Position) -> Position:
        """Read to the end of the list, or as far as the limit allows."""
        end = len(self.records)
        if self.max_records_per_batch is not None:
            end = min(end, after["0"] + self.max_records_per_batch)
        return {"0": end}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Deal the range out, always the same record to the same part."""
        first, last = start["0"], end["0"]
        parts = [
            (part, self.records[first + (part - first) % self.partitions : last : self.partitions])
            for part in range(self.partitions)
        ]
        return [(part, records) for part, records in parts if records]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Read the records of a part, which travel with it."""
        _, records = split
        for start in range(0, len(records), _CHUNK):
            yield records[start : start + _CHUNK]

    def records_in(self, split: Split) -> int:
        """Return how many have travelled with the part."""
        return len(split[1])

    def lane(self, split: Split) -> str:
        """Return the number of the part."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the parts that have any record: all of them are known, read or not."""
        return [str(part) for part in range(min(self.partitions, len(self.records)))]

    def unread(self, end: Position) -> Sequence[str]:
        """Return the parts that have a record behind a position."""
        behind = range(end["0"], min(end["0"] + self.partitions, len(self.records)))
        return sorted({str(number % self.partitions) for number in behind})

    def lag(self, after: Position) -> int:
        """Return how many items are left."""
        return len(self.records) - after["0"]

    def on_worker(self) -> MemorySource:
        """Leave the list behind: workers get their records with their split."""
        return MemorySource()


class MemorySink(Sink):
    """Collects records in ``records``, in the driver's memory.

    Of a job with replicas each has a sink of its own, and ``ids`` has an id for each of the records.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ids: list[str] = []

    def writer(self, context: WriteContext) -> SinkWriter:
        """Collect on the worker."""
        return CollectingWriter(context.ids)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Take a batch over."""
        for collected in receipts:
            self.records.extend(collected.records)
            self.ids.extend(collected.ids)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "records": [], "ids": []}


class Collected(NamedTuple):
    """The records of one Spark task, and their ids where they have any."""

    records: list[Record]
    ids: list[str]


class CollectingWriter(SinkWriter):
    """Sends its records to the driver with the receipt."""

    def __init__(self, ids: RecordIds | None) -> None:
        self._given = ids
        self._collected = Collected([], [])

    def write(self, records: list[Record]) -> None:
        """Keep the records."""
        self._collected.records.extend(records)
        if self._given is not None:
            self._collected.ids.extend(self._given.next(len(records)))

    def finish(self) -> Receipt | None:
        """Hand the records over."""
        return self._collected if self._collected.records else None
