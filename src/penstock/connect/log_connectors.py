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

_SEGMENT_RECORDS = 200_000
"""How many records a writer buffers before it seals a segment."""

_CACHED_KEYS = 100_000
"""For how many keys a writer caches the partition: a lookup takes a third of the time of a hash."""

_ID = "id"
"""The entry of a position that identifies the log; all other entries are partitions."""

_ID_DIGITS = 13
"""How many hex digits of a log's id fit into a number that every JSON parser represents exactly."""


class _NamedLog:
    """Base of source and sink: a log given by its name, opened on first use."""

    def __init__(self, name: str, root: str | Path | None) -> None:
        log_folder(name, root)  # Raise for an invalid name here, where the user has written it.
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
        """The log's folder."""
        return log_folder(self.name, self.root)

    def describe(self) -> dict[str, Any]:
        """Return the log's name."""
        return {"log": self.name}

    def __getstate__(self) -> dict[str, Any]:
        # Resolve the folder on the driver: a worker's environment may set another home.
        return {**self.__dict__, "_log": None, "root": self.root or str(home())}


class LogSource(_NamedLog, Source):
    """Reads a log from its beginning.

    ``max_records_per_batch`` limits the records that a batch takes from all partitions together, so that a
    long backlog is processed in several batches.
    """

    def __init__(
        self, name: str, *, root: str | Path | None = None, max_records_per_batch: int | None = 1_000_000
    ) -> None:
        super().__init__(name, root)
        setting_values.check_whole_number(
            "LogSource", "max_records_per_batch", max_records_per_batch, optional=True
        )
        self.max_records_per_batch = max_records_per_batch
        self._stored: dict[str, Position] = {}

    def begin(self) -> Position:
        """Start with the oldest record that the log still has."""
        return {**self._begin(self._current_log()), **self._log_id()}

    def latest(self, after: Position) -> Position:
        """Read to the end of each partition, or as far as its share of the limit allows."""
        log = self._checked_log(after)
        reached = self._with_all_partitions(after)
        ends = {p: log.end(int(p)) for p in reached}
        for p, begin in self._begin(log).items():
            if ends[p] < reached[p]:
                raise self._other_log_error(
                    f"partition {p} ends at {ends[p]}, but the job has read up to {reached[p]}"
                )
            if begin > reached[p]:
                raise LogError(
                    f"log {self.name!r}, partition {p}: positions before {begin} are gone, and the job has "
                    f"read up to {reached[p]}: retention has deleted records that it had not read. Start the "
                    f"job from {begin} on with fresh=True (--fresh), and let the log keep more records "
                    f"(`penstock log retain {self.name}`)"
                )
        if self.max_records_per_batch is not None:
            behind = sum(1 for p in ends if ends[p] > reached[p])
            share = max(1, self.max_records_per_batch // max(1, behind))
            ends = {p: min(ends[p], reached[p] + share) for p in ends}
        # Without new records return the position unchanged: one from before logs had ids has no id.
        return after if ends == _numbers(after) else {**ends, **self._log_id()}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Return one split for each partition with new records."""
        self._checked_log(end)
        first, last = self._with_all_partitions(start), _numbers(end)
        return [(int(p), first[p], last[p]) for p in sorted(last, key=int) if last[p] > first[p]]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Read a range of one partition."""
        partition, start, end = split
        return self.log.read(partition, start, end)

    def records_in(self, split: Split) -> int:
        """Return the number of records in the split."""
        _, start, end = split
        return int(end) - int(start)

    def lane(self, split: Split) -> str:
        """Return the partition."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the partitions that are not empty."""
        return [p for p, position in end.items() if p.isdigit() and position > 0]

    def lag(self, after: Position) -> int:
        """Return the number of records between a position and the end of the log."""
        reached = self._with_all_partitions(after)
        return sum(max(0, self.log.end(int(p)) - reached[p]) for p in reached)

    def committed(self, position: Position, reader: str) -> None:
        """Store a reader's position in the log, for lag and retention.

        Errors are ignored: a log on a full or read-only disk can still be read.
        """
        if self._stored.get(reader) == position:
            return
        with suppress(LogError, OSError):
            self.log.note_reader(reader, {int(p): number for p, number in _numbers(position).items()})
            self._stored[reader] = position

    def _current_log(self) -> Log:
        if not self.log.is_same():
            self._log = None
        return self.log

    def _checked_log(self, position: Position) -> Log:
        log = self._current_log()
        if _ID in position and position[_ID] != self._log_id().get(_ID):
            raise self._other_log_error("it was created again after the job had read it")
        return log

    def _other_log_error(self, reason: str) -> LogError:
        return LogError(
            f"log {self.name!r}: {reason}: it is not the log that the job has read. Restore the old one, or "
            "start the job from scratch with fresh=True (--fresh)"
        )

    def _log_id(self) -> Position:
        return {} if self.log.id is None else {_ID: int(self.log.id[:_ID_DIGITS], 16)}

    def _begin(self, log: Log) -> Position:
        return {str(partition): log.begin(partition) for partition in range(log.partitions)}

    def _with_all_partitions(self, position: Position) -> Position:
        """Return a position without the log's id, and with the begin of each partition that it lacks."""
        numbers = _numbers(position)
        return numbers if len(numbers) == self.log.partitions else {**self._begin(self.log), **numbers}


def _numbers(position: Position) -> Position:
    return {p: number for p, number in position.items() if p != _ID}


class LogSink(_NamedLog, Sink):
    """Appends to a log, exactly once. A log that does not exist is created.

    Records go to the partition of their key, as with ``Log.append``.
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
        """Whether to store the representation of a value that a log cannot store, instead of failing."""
        self.holdable = not lenient
        self._tidied = False

    @property
    def log(self) -> Log:
        """The log, with ``fsync="full"`` for a job with ``durability="batch"``."""
        if self.synced and (self._log is None or self._log.fsync != "full"):
            self._log = Log.open(self.folder, fsync="full")
        return super().log

    def prepare(self) -> None:
        """Create the log if it does not exist."""
        Log.create(self.folder, partitions=self.partitions, exist_ok=True)
        if self.synced:
            sync_with_parents(self.folder)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer of staged segments."""
        return _LogWriter(self.log, self.lenient, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Publish those segments of a batch that are not published yet."""
        for receipt in receipts:
            self.log.publish(_segments(receipt), receipt["since"])

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove segments that will not be published."""
        for receipt in receipts:
            self.log.unstage(_segments(receipt))

    def describe(self) -> dict[str, Any]:
        """Return the log's name, and its root folder if one was given."""
        root = None if self.root is None else str(Path(self.root).absolute())
        return {**super().describe(), "root": root}

    def tidy(self, job: str) -> None:
        """Remove old segments that crashes have left in staging."""
        if not self._tidied:
            self.log.discard_staged(ABANDONED, owner=job)
            self._tidied = True


def _segments(receipt: Receipt) -> list[StagedSegment]:
    return [StagedSegment.from_json(segment) for segment in receipt["segments"]]


def _storable(value: Any) -> Any:
    """Return a value in which unstorable parts are replaced by their representation."""
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
        self._partition_by_key: dict[Any, int] = {}

    def write(self, records: list[Record]) -> None:
        if len(self._waiting) == 1:
            self._waiting[0].extend(records)
        else:
            self._distribute(records)
        for partition, waiting in enumerate(self._waiting):
            if len(waiting) >= _SEGMENT_RECORDS:
                self._seal(partition)

    def _distribute(self, records: list[Record]) -> None:
        for record in records:
            try:
                partition = self._partition_of(record[0])
            except TypeError as error:
                # A key that has no hash cannot be stored either. Sealing handles it, in any partition.
                if self._reject is None and not self._lenient:
                    raise UnstorableValueError(str(error)) from error
                partition = 0
            self._waiting[partition].append(record)

    def _partition_of(self, key: Any) -> int:
        try:
            return self._partition_by_key[key]
        except KeyError:
            partition = partition_of(key, len(self._waiting))
            if len(self._partition_by_key) < _CACHED_KEYS:
                self._partition_by_key[key] = partition
            return partition
        except TypeError:  # A list or a dict has a partition, but cannot be a dict key.
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
            # No receipt will name the staged segments: delete them to free disk space.
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
