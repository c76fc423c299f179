"""The embedded log as source and sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import LogError, UnstorableValueError, shorten
from penstock.graph.ends import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.keys import key_hash
from penstock.log import Log, StagedSegment, home, log_folder, tagged
from penstock.record import Record

_SEGMENT = 200_000
"""How many records a writer holds before it seals a segment."""

_REMEMBERED = 100_000
"""How many keys a writer knows the partition of: a look-up costs a third of a hash."""

_ABANDONED = 30 * 24 * 3600.0
"""Seconds after which a segment that nobody has published is the leftover of a crash."""


class _NamedLog:
    """What a source and a sink have in common: a log by its name, opened when it is needed first."""

    def __init__(self, name: str, root: str | Path | None) -> None:
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
        self.max_records_per_batch = max_records_per_batch

    def begin(self) -> Position:
        """Start with the oldest record that the log still has."""
        return {str(partition): self.log.begin(partition) for partition in range(self.log.partitions)}

    def latest(self, after: Position) -> Position:
        """Read to the end of each partition, or as far as each one's share of the limit allows."""
        ends = {p: self.log.end(int(p)) for p in self.begin_of_missing(after)}
        for p, end in ends.items():
            if end < after.get(p, 0):
                raise LogError(
                    f"log {self.name!r}, partition {p} ends at {end}, and the job has read up to {after[p]}:"
                    " it is not the log that it was. Put the old one back, or start the job from scratch"
                    " with fresh=True (--fresh)"
                )
        if self.max_records_per_batch is None:
            return ends
        waiting = {p: ends[p] - after.get(p, 0) for p in ends}
        behind = sum(1 for count in waiting.values() if count)
        share = max(1, self.max_records_per_batch // max(1, behind))
        return {p: after.get(p, 0) + min(waiting[p], share) for p in ends}

    def begin_of_missing(self, after: Position) -> Position:
        """Return the position with all partitions of the log in it."""
        if len(after) == self.log.partitions:
            return after
        return {**self.begin(), **after}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Make a part of each partition that has something new."""
        begin = self.begin_of_missing(start)
        return [(int(p), begin[p], end[p]) for p in sorted(end, key=int) if end[p] > begin[p]]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Read a range of one partition."""
        partition, start, end = split
        return self.log.read(partition, start, end)

    def lane(self, split: Split) -> str:
        """Return the partition."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the partitions that are not empty."""
        return [p for p, position in end.items() if p.isdigit() and position > 0]

    def lag(self, after: Position) -> int:
        """Return how many records lie between a position and the end of the log."""
        begin = self.begin_of_missing(after)
        return sum(self.log.end(int(p)) - begin[p] for p in begin)


class LogSink(_NamedLog, Sink):
    """Appends to a log, exactly once. A log that does not exist is created.

    Records go to the partition of their key, as they do when they are appended by hand.
    """

    transactional = True

    def __init__(
        self,
        name: str,
        *,
        root: str | Path | None = None,
        partitions: int | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(name, root)
        self.partitions = partitions
        self.lenient = lenient
        """Store the representation of a value that has no form in a log, instead of failing."""

    def prepare(self) -> None:
        """Create the log unless there is one."""
        log = Log.create(self.folder, partitions=self.partitions, exist_ok=True)
        log.discard_staged(_ABANDONED)

    def writer(self, context: WriteContext) -> SinkWriter:  # noqa: ARG002
        """Write segments that nobody sees yet."""
        return _LogWriter(self.log, self.lenient)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Publish the segments of a batch, those that are not published yet."""
        for receipt in receipts:
            staged = [StagedSegment.from_json(segment) for segment in receipt["segments"]]
            self.log.publish(staged, receipt["since"])


def _storable(value: Any) -> Any:
    """Return a value with what has no form in a log replaced by how it is shown."""
    try:
        tagged.dumps(value)
    except UnstorableValueError:
        if type(value) is dict:
            return {key: _storable(part) for key, part in value.items()}
        return shorten(value)
    return value


class _LogWriter(SinkWriter):
    def __init__(self, log: Log, lenient: bool) -> None:
        self._log = log
        self._lenient = lenient
        self._since = log.ends()
        self._waiting: list[list[Record]] = [[] for _ in range(log.partitions)]
        self._staged: list[StagedSegment] = []
        self._places: dict[Any, int] = {}

    def write(self, records: list[Record]) -> None:
        if len(self._waiting) == 1:
            self._waiting[0].extend(records)
        else:
            for record in records:
                self._waiting[self._partition_of(record[0])].append(record)
        for partition, waiting in enumerate(self._waiting):
            if len(waiting) >= _SEGMENT:
                self._seal(partition)

    def _partition_of(self, key: Any) -> int:
        try:
            return self._places[key]
        except KeyError:
            place = key_hash(key) % len(self._waiting)
            if len(self._places) < _REMEMBERED:
                self._places[key] = place
            return place
        except TypeError:  # A list or a dict has a place too, but not in a dict.
            return key_hash(key) % len(self._waiting)

    def finish(self) -> Receipt | None:
        for partition, waiting in enumerate(self._waiting):
            if waiting:
                self._seal(partition)
        if not self._staged:
            return None
        return {"segments": [segment.to_json() for segment in self._staged], "since": self._since}

    def _seal(self, partition: int) -> None:
        records = self._waiting[partition]
        self._waiting[partition] = []
        try:
            staged = self._log.stage(partition, records)
        except UnstorableValueError:
            if not self._lenient:
                raise
            shown = [Record(_storable(key), _storable(value), ts) for key, value, ts in records]
            staged = self._log.stage(partition, shown)
        self._staged.append(staged)
