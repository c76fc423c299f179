"""Sources and sinks whose records are in the driver process.

Memory, console, and a function called with each batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from penstock import setting_values
from penstock.connect.sink_staging import BatchNumber, StagedSink, StagingWriter
from penstock.errors import SettingError, shown
from penstock.graph.connector_api import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.record import Record, as_record
from penstock.replicas.record_ids import RecordIds

_CHUNK = 2048


class MemorySource(Source):
    """Reads a list of items: values, ``(key, value)`` pairs or records.

    The list is gone when the program ends, so a job with such a source starts from scratch each time. Item
    ``i`` belongs to partition ``i % partitions``, however batches are cut.
    """

    bounded = True
    durable = False

    def __init__(
        self, items: Iterable[Any] = (), *, partitions: int = 1, max_records_per_batch: int | None = None
    ) -> None:
        setting_values.check_whole_number("MemorySource", "partitions", partitions)
        setting_values.check_whole_number(
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


class ConsoleSink(Sink):
    """Prints each record as ``key<TAB>value``, or the value alone where there is no key.

    Of a job with replicas each prints all records, behind an id by which :func:`penstock.deduplicated` tells
    them: ``id<TAB>key<TAB>value``.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def writer(self, context: WriteContext) -> SinkWriter:
        """Collect on the worker."""
        return CollectingWriter(context.ids)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Print a batch in one write, so that batches of several sinks do not mix line by line."""
        lines = [
            f"{begin}{value}\n" if key is None else f"{begin}{key}\t{value}\n"
            for collected in receipts
            for begin, (key, value, _) in zip(_beginnings(collected), collected.records, strict=True)
        ]
        stream = self._stream or sys.stdout
        stream.write("".join(lines))
        stream.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": None}


def _beginnings(collected: Collected) -> list[str]:
    """Return what each line begins with."""
    return [f"{record_id}\t" for record_id in collected.ids] or [""] * len(collected.records)


class ForeachBatchSink(StagedSink):
    """Calls ``function(batch, records)`` on the driver, once for each batch that has records.

    The records wait in files below ``folder`` until the function has returned. A crash before that repeats
    the call, with the same ``batch.id`` and the same records: a function that does nothing for an id that it
    has seen makes it exactly once. The number itself, which ``batch`` is, comes again with other records when
    a job starts from scratch or from older data. What the function raises ends the job, and the next run
    begins with that call.
    """

    def __init__(
        self, function: Callable[[BatchNumber, list[Record]], Any], *, folder: str | Path | None = None
    ) -> None:
        setting_values.check_function("ForeachBatchSink", "function", function, optional=False)
        self.function: Callable[[BatchNumber, list[Record]], Any] | None = function
        super().__init__("ForeachBatchSink", folder)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write what the function will be called with."""
        return StagingWriter(self._staging.folder, context, synced=self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Call the function, unless it has been called and has returned."""
        function = self.function
        assert function is not None, "only the driver's own sink has the function"
        number = BatchNumber(batch, receipts)
        self._staging.deliver_once(
            receipts, lambda records: function(number, list(records)), synced=self.synced
        )

    def describe(self) -> dict[str, Any]:
        """Return where records wait."""
        return {"folder": self._staging.described}

    def __getstate__(self) -> dict[str, Any]:
        # Workers never call it, and what it holds, such as a connection, may not be able to travel.
        return {**self.__dict__, "function": None}
