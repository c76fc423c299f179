"""Sources and sinks in the driver process: memory, console, and a function called with each batch."""

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

    The list does not outlive the program, so a job with such a source starts from scratch each time. Item
    ``i`` belongs to partition ``i % partitions``, regardless of batch boundaries.
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
        """Split the range by partition: a record always belongs to the same one."""
        first, last = start["0"], end["0"]
        parts = [
            (part, self.records[first + (part - first) % self.partitions : last : self.partitions])
            for part in range(self.partitions)
        ]
        return [(part, records) for part, records in parts if records]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Read the records of a split, which contains them."""
        _, records = split
        for start in range(0, len(records), _CHUNK):
            yield records[start : start + _CHUNK]

    def records_in(self, split: Split) -> int:
        """Return the number of records in the split."""
        return len(split[1])

    def lane(self, split: Split) -> str:
        """Return the partition number."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:  # noqa: ARG002
        """Return the partitions that have any record, read or not."""
        return [str(part) for part in range(min(self.partitions, len(self.records)))]

    def unread(self, end: Position) -> Sequence[str]:
        """Return the partitions that have a record after a position."""
        behind = range(end["0"], min(end["0"] + self.partitions, len(self.records)))
        return sorted({str(number % self.partitions) for number in behind})

    def lag(self, after: Position) -> int:
        """Return the number of items not yet read."""
        return len(self.records) - after["0"]

    def on_worker(self) -> MemorySource:
        """Return a source without the list: workers get their records in the splits."""
        return MemorySource()


class MemorySink(Sink):
    """Collects records in ``records``, in the driver's memory.

    Each replica of a job has its own sink, and ``ids`` then holds an id for each record.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ids: list[str] = []

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that collects records on the worker."""
        return CollectingWriter(context.ids)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Add the records of a batch."""
        for collected in receipts:
            self.records.extend(collected.records)
            self.ids.extend(collected.ids)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "records": [], "ids": []}


class Collected(NamedTuple):
    """The records of one Spark task, and their ids in a job with replicas."""

    records: list[Record]
    ids: list[str]


class CollectingWriter(SinkWriter):
    """Sends its records to the driver in the receipt."""

    def __init__(self, ids: RecordIds | None) -> None:
        self._given = ids
        self._collected = Collected([], [])

    def write(self, records: list[Record]) -> None:
        """Collect records."""
        self._collected.records.extend(records)
        if self._given is not None:
            self._collected.ids.extend(self._given.next(len(records)))

    def finish(self) -> Receipt | None:
        """Return the collected records as the receipt."""
        return self._collected if self._collected.records else None


class ConsoleSink(Sink):
    """Prints each record as ``key<TAB>value``, or only the value if there is no key.

    Each replica of a job prints all records, with an id that :func:`penstock.deduplicated` uses to remove
    duplicates: ``id<TAB>key<TAB>value``.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that collects records on the worker."""
        return CollectingWriter(context.ids)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Print a batch in one write, so that the lines of several sinks are not interleaved."""
        lines = [
            f"{prefix}{value}\n" if key is None else f"{prefix}{key}\t{value}\n"
            for collected in receipts
            for prefix, (key, value, _) in zip(_line_prefixes(collected), collected.records, strict=True)
        ]
        stream = self._stream or sys.stdout
        stream.write("".join(lines))
        stream.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": None}


def _line_prefixes(collected: Collected) -> list[str]:
    """Return the prefix of each line: the record's id and a tab, or nothing."""
    return [f"{record_id}\t" for record_id in collected.ids] or [""] * len(collected.records)


class ForeachBatchSink(StagedSink):
    """Calls ``function(batch, records)`` on the driver, once for each batch that has records.

    The records are staged in files below ``folder`` until the function has returned. After a crash before
    that, the call is repeated with the same ``batch.id`` and the same records: a function that ignores ids
    that it has seen processes each batch exactly once. The number ``batch`` itself is used again, with other
    records, when a job starts from scratch or from older data. An exception in the function ends the job, and
    the next run begins with that call.
    """

    def __init__(
        self, function: Callable[[BatchNumber, list[Record]], Any], *, folder: str | Path | None = None
    ) -> None:
        setting_values.check_function("ForeachBatchSink", "function", function, optional=False)
        self.function: Callable[[BatchNumber, list[Record]], Any] | None = function
        super().__init__("ForeachBatchSink", folder)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that stages the records."""
        return StagingWriter(self._staging.folder, context, synced=self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Call the function, unless a call for this batch has returned before."""
        function = self.function
        assert function is not None, "only the driver's sink has the function"
        number = BatchNumber(batch, receipts)
        self._staging.deliver_once(
            receipts, lambda records: function(number, list(records)), synced=self.synced
        )

    def describe(self) -> dict[str, Any]:
        """Return the staging folder."""
        return {"folder": self._staging.described}

    def __getstate__(self) -> dict[str, Any]:
        # Workers never call the function, and its closure, such as a connection, may not be picklable.
        return {**self.__dict__, "function": None}
