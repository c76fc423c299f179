"""The embedded log as source and sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import setting_values
from penstock.connect.sink_staging import ABANDONED, storable_records
from penstock.errors import LogError, UnstorableValueError, shorten
from penstock.graph.connector_api import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.local_files import sync_with_parents
from penstock.log import Log, StagedSegment, home, log_folder, tagged_json
from penstock.log.record_router import partition_of
from penstock.record import Record

_SEGMENT = 200_000
"""How many records a writer holds before it seals a segment."""

_REMEMBERED = 100_000
"""How many keys a writer knows the partition of: a look-up costs a third of a hash."""

_ID = "id"
"""The entry of a position that says which log it belongs to; all others are partitions."""

_ID_DIGITS = 13
"""How many hex digits of a log's id fit into a number that JSON keeps everywhere."""


class _NamedLog:
    """What a source and a sink have in common: a log by its name, opened when it is needed first."""

    def __init__(self, name: str, root: str | Path | None) -> None:
        log_folder(name, root)  # A bad name is told where it was written.
        self.name = name
        self.root = None if root is None else str(root)
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        """The log."""
        if self._log is None:
            self._log = Log.open(self.folder)
        return self._log

    @property
    def folder(self) -> Path:
        """Where the log is."""
        return log_folder(self.name, self.root)

    def describe(self) -> dict[str, Any]:
        """Return which log it is."""
        return {"log": self.name}

    def __getstate__(self) -> dict[str, Any]:
        # A worker's environment need not be the driver's: where the logs are is settled here.
        return {**self.__dict__, "_log": None, "root": self.root or str(home())}


class LogSource(_NamedLog, Source):
    """Reads a log from its beginning.

    ``max_records_per_batch`` bounds how much a batch takes from all partitions together, so that
    catching up with a long backlog happens in steps.
    """

    def __init__(
        self, name: str, *, root: str | Path | None = None, max_records_per_batch: int | None = 1_000_000
    ) -> None:
        super().__init__(name, root)
        setting_values.check_whole_number(
            "LogSource", "max_records_per_batch", max_records_per_batch, optional=True
        )
        self.max_records_per_batch = max_records_per_batch
        self._noted: dict[str, Position] = {}

    def begin(self) -> Position:
        """Start with the oldest record that the log still has."""
        return {**self._begin(self._log_as_it_is()), **self._mark()}

    def latest(self, after: Position) -> Position:
        """Read to the end of each partition, or as far as each one's share of the limit allows."""
        log = self._checked(after)
        reached = self._complete(after)
        ends = {p: log.end(int(p)) for p in reached}
        for p, begin in self._begin(log).items():
            if ends[p] < reached[p]:
                raise self._another(
                    f"partition {p} ends at {ends[p]}, but the job has read up to {reached[p]}"
                )
            if begin > reached[p]:
                raise LogError(
                    f"log {self.name!r}, partition {p}: positions before {begin} are gone, and the job has "
                    f"read up to {reached[p]}: retention has deleted records that it had not read. Start the "
                    f"job from {begin} on with fresh=True (--fresh), and let the log keep more (`penstock "
                    f"log retain {self.name}`)"
                )
        if self.max_records_per_batch is not None:
            behind = sum(1 for p in ends if ends[p] > reached[p])
            share = max(1, self.max_records_per_batch // max(1, behind))
            ends = {p: min(ends[p], reached[p] + share) for p in ends}
        # A position from before logs had ids stays equal to itself while there is nothing new.
        return after if ends == _numbers(after) else {**ends, **self._mark()}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Make a part of each partition that has something new."""
        self._checked(end)
        first, last = self._complete(start), _numbers(end)
        return [(int(p), first[p], last[p]) for p in sorted(last, key=int) if last[p] > first[p]]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Read a range of one partition."""
        partition, start, end = split
        return self.log.read(partition, start, end)

    def records_in(self, split: Split) -> int:
        """Return the length of the range."""
        _, start, end = split
        return int(end) - int(start)

    def lane(self, split: Split) -> str:
        """Return the partition."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the partitions that are not empty."""
        return [p for p, position in end.items() if p.isdigit() and position > 0]

    def lag(self, after: Position) -> int:
        """Return how many records lie between a position and the end of the log."""
        reached = self._complete(after)
        return sum(max(0, self.log.end(int(p)) - reached[p]) for p in reached)

    def committed(self, position: Position, reader: str) -> None:
        """Note in the log how far a reader is: for its lag, and for retention.

        A log that cannot be written, for want of room or of permission, can still be read.
        """
        if self._noted.get(reader) == position:
            return
        with suppress(LogError, OSError):
            self.log.note_reader(reader, {int(p): number for p, number in _numbers(position).items()})
            self._noted[reader] = position

    def _log_as_it_is(self) -> Log:
        if not self.log.is_same():
            self._log = None
        return self.log

    def _checked(self, position: Position) -> Log:
        log = self._log_as_it_is()
        if _ID in position and position[_ID] != self._mark().get(_ID):
            raise self._another("it was created again after the job had read it")
        return log

    def _another(self, reason: str) -> LogError:
        return LogError(
            f"log {self.name!r}: {reason}: it is not the log that the job has read. Restore the old one, or "
            "start the job from scratch with fresh=True (--fresh)"
        )

    def _mark(self) -> Position:
        return {} if self.log.id is None else {_ID: int(self.log.id[:_ID_DIGITS], 16)}

    def _begin(self, log: Log) -> Position:
        return {str(partition): log.begin(partition) for partition in range(log.partitions)}

    def _complete(self, position: Position) -> Position:
        """Return the numbers of a position, and the begin of each partition that it lacks."""
        numbers = _numbers(position)
        return numbers if len(numbers) == self.log.partitions else {**self._begin(self.log), **numbers}


def _numbers(position: Position) -> Position:
    return {p: number for p, number in position.items() if p != _ID}


class LogSink(_NamedLog, Sink):
    """Appends to a log, exactly once. A log that does not exist is created.

    Records go to the partition of their key, as they do when they are appended by hand.
    """

    transactional = True
    shared = True

    def __init__(
        self,
        name: str,
        *,
        root: str | Path | None = None,
        partitions: int | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(name, root)
        setting_values.check_whole_number("LogSink", "partitions", partitions, optional=True)
        self.partitions = partitions
        self.lenient = lenient
        """Store the representation of a value that has no form in a log, instead of failing."""
        self.holdable = not lenient
        self._tidied = False

    @property
    def log(self) -> Log:
        """The log; what a job with ``durability="batch"`` does with it waits for the disk."""
        if self.synced and (self._log is None or self._log.fsync != "full"):
            self._log = Log.open(self.folder, fsync="full")
        return super().log

    def prepare(self) -> None:
        """Create the log unless there is one."""
        Log.create(self.folder, partitions=self.partitions, exist_ok=True)
        if self.synced:
            sync_with_parents(self.folder)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write segments that nobody sees yet."""
        return _LogWriter(self.log, self.lenient, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Publish the segments of a batch, those that are not published yet."""
        for receipt in receipts:
            self.log.publish(_segments(receipt), receipt["since"])

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove segments that will not be published."""
        for receipt in receipts:
            self.log.unstage(_segments(receipt))

    def describe(self) -> dict[str, Any]:
        """Return which log it is, and below which folder if one was named."""
        root = None if self.root is None else str(Path(self.root).absolute())
        return {**super().describe(), "root": root}

    def tidy(self, job: str) -> None:
        """Remove segments that crashes have left long ago."""
        if not self._tidied:
            self.log.discard_staged(ABANDONED, owner=job)
            self._tidied = True


def _segments(receipt: Receipt) -> list[StagedSegment]:
    return [StagedSegment.from_json(segment) for segment in receipt["segments"]]


def _storable(value: Any) -> Any:
    """Return a value with what has no form in a log replaced by how it is shown."""
    try:
        tagged_json.dumps(value)
    except UnstorableValueError:
        if type(value) is dict:
            return {key: _storable(part) for key, part in value.items()}
        return shorten(value)
    return value


class _LogWriter(SinkWriter):
    def __init__(self, log: Log, lenient: bool, context: WriteContext) -> None:
        self._log = log
        self._lenient = lenient
        self._job = context.job
        self._reject = context.reject
        self._since = log.ends()
        self._waiting: list[list[Record]] = [[] for _ in range(log.partitions)]
        self._staged: list[StagedSegment] = []
        self._places: dict[Any, int] = {}

    def write(self, records: list[Record]) -> None:
        if len(self._waiting) == 1:
            self._waiting[0].extend(records)
        else:
            self._distribute(records)
        for partition, waiting in enumerate(self._waiting):
            if len(waiting) >= _SEGMENT:
                self._seal(partition)

    def _distribute(self, records: list[Record]) -> None:
        for record in records:
            try:
                place = self._partition_of(record[0])
            except TypeError as error:
                # A key without a place has no form in a log either, so that sealing is where it is met.
                if self._reject is None and not self._lenient:
                    raise UnstorableValueError(str(error)) from error
                place = 0
            self._waiting[place].append(record)

    def _partition_of(self, key: Any) -> int:
        try:
            return self._places[key]
        except KeyError:
            place = partition_of(key, len(self._waiting))
            if len(self._places) < _REMEMBERED:
                self._places[key] = place
            return place
        except TypeError:  # A list or a dict has a place too, but not in a dict.
            return partition_of(key, len(self._waiting))

    def finish(self) -> Receipt | None:
        for partition, waiting in enumerate(self._waiting):
            if waiting:
                self._seal(partition)
        if not self._staged:
            return None
        segments = [segment.to_json() for segment in self._staged]
        return {"job": self._job, "segments": segments, "since": self._since}

    def _seal(self, partition: int) -> None:
        records = self._waiting[partition]
        self._waiting[partition] = []
        try:
            self._stage(partition, records)
        except BaseException:
            # Nobody will hear of what is staged, and a disk may be full of it.
            self._log.unstage(self._staged)
            raise

    def _stage(self, partition: int, records: list[Record]) -> None:
        try:
            staged = self._log.stage(partition, records, owner=self._job)
        except UnstorableValueError:
            if self._lenient:
                records = [Record(_storable(key), _storable(value), ts) for key, value, ts in records]
            elif self._reject is not None:
                records = list(storable_records(records, self._reject))
            else:
                raise
            if not records:
                return
            staged = self._log.stage(partition, records, owner=self._job)
        self._staged.append(staged)
