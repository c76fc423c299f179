"""The log: named, partitioned, append-only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.errors import LogError, LogExistsError
from penstock.log import description, segment, staging, stat
from penstock.log.partition import Partition
from penstock.log.routing import Router, check_records
from penstock.log.segment import HEADER_SIZE, DamageError, Header, Sealed
from penstock.log.staging import StagedSegment
from penstock.log.stat import LogStat
from penstock.log.watch import Watch
from penstock.record import Record


class Log:
    """An append-only, partitioned log in a folder.

    Any number of processes may append and read at the same time. Within a partition the records have
    positions 0, 1, 2, …; what one append adds to a partition becomes visible as a whole or not at all.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = Log.create(f"{folder.name}/orders")
    >>> log.append([Record("ann", 3), Record("bob", 5)], now=1.5)
    >>> [record for chunk in log.read(0, start=0) for record in chunk]
    [Record(key='ann', value=3, ts=1.5), Record(key='bob', value=5, ts=1.5)]
    >>> log.begin(0), log.end(0)
    (0, 2)
    """

    def __init__(self, path: Path, partitions: int, *, sync: bool = False) -> None:
        """Use ``Log.create`` or ``Log.open``, which look at the folder."""
        self.path = path
        self.partitions = partitions
        self.sync = sync
        self._staging = path / description.STAGING
        self._partitions = [
            Partition(path.name, number, path / description.partition_folder(number), sync=sync)
            for number in range(partitions)
        ]
        self._router = Router(partitions)

    @classmethod
    def create(
        cls, path: str | Path, partitions: int | None = None, exist_ok: bool = False, *, sync: bool = False
    ) -> Log:
        """Make a log, of one partition unless told otherwise.

        With ``exist_ok`` an existing log is opened; if ``partitions`` is given, it must have that many.
        With ``sync`` an append returns only when the disk has the records, so they survive a power cut.
        """
        folder = Path(path).absolute()
        try:
            description.create(folder, 1 if partitions is None else partitions)
        except LogExistsError:
            if not exist_ok:
                raise
        log = cls.open(folder, sync=sync)
        if partitions not in (None, log.partitions):
            raise LogExistsError(f"the log at {folder} has {log.partitions} partitions, not {partitions}")
        return log

    @classmethod
    def open(cls, path: str | Path, *, sync: bool = False) -> Log:
        """Use a log that exists; ``LogNotFoundError`` says how to make one."""
        folder = Path(path).absolute()
        return cls(folder, description.read(folder), sync=sync)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    def append(
        self, records: Sequence[Record], partition: int | None = None, *, now: float | None = None
    ) -> None:
        """Add records at the end: one segment for each partition that gets any.

        Without ``partition``, a record goes where its key's hash says; those whose key is None all go to
        one partition, the next one with each call. A record without a time gets ``now``. When this returns,
        the records are in the log; when it raises, each partition has all of its part or nothing.
        """
        check_records(records)
        if not records:
            return
        routed = self._router.route(records) if partition is None else {partition: records}
        # Everything is encoded before anything is written: a value that cannot be stored stores nothing.
        sealed = [(self._partition(number), self._seal(part, now)) for number, part in routed.items()]
        pending = [self._staging / staging.file_name("append", part.header.id.hex()) for _, part in sealed]
        try:
            for path, (_, part) in zip(pending, sealed, strict=True):
                staging.write(path, part, sync=self.sync)
            for path, (target, part) in zip(pending, sealed, strict=True):
                target.publish(path, part.header)
        except BaseException:
            for path in pending:
                path.unlink(missing_ok=True)
            raise

    def begin(self, partition: int) -> int:
        """The position of a partition's first record."""
        return self._partition(partition).begin()

    def end(self, partition: int) -> int:
        """The position that a partition's next record will get."""
        return self._partition(partition).end()

    def ends(self) -> list[int]:
        """The end of every partition, in their order."""
        return [partition.end() for partition in self._partitions]

    def read(self, partition: int, start: int, end: int | None = None) -> Iterator[list[Record]]:
        """The records from position ``start`` up to ``end``, or up to the end as it is now, in lists.

        No record of a segment is returned before the whole segment is verified.
        """
        return self._partition(partition).read(start, end)

    def tail(
        self,
        partition: int,
        start: int,
        stop: Callable[[], bool] | None = None,
        idle_timeout: float | None = None,
    ) -> Iterator[list[Record]]:
        """The records from position ``start`` on, those that are yet to come included.

        Ends when ``stop`` returns true, or when nothing came for ``idle_timeout`` seconds.
        """
        source = self._partition(partition)
        source.check_start(start)
        return self._follow(source, start, stop or _never, idle_timeout)

    def _follow(
        self, source: Partition, position: int, stop: Callable[[], bool], idle_timeout: float | None
    ) -> Iterator[list[Record]]:
        with self.watch([source.number]) as watch:
            idle_since = time.monotonic()
            while not stop():
                found = False
                for chunk in source.read(position):
                    yield chunk
                    position += len(chunk)
                    found = True
                    if stop():
                        return
                if found:
                    idle_since = time.monotonic()
                    continue
                left = float("inf") if idle_timeout is None else idle_since + idle_timeout - time.monotonic()
                if left <= 0:
                    return
                watch.wait(left)

    def watch(self, partitions: Sequence[int] | None = None) -> Watch:
        """A watch that wakes when one of some partitions, or of all, may have grown."""
        numbers = range(self.partitions) if partitions is None else partitions
        return Watch([self._partition(number).folder for number in numbers])

    def stage(self, partition: int, records: Sequence[Record], now: float | None = None) -> StagedSegment:
        """Write one or more records as a sealed segment that nobody sees before it is published."""
        check_records(records)
        self._partition(partition)
        if not records:
            raise LogError(
                f"log {self.name!r}: a segment holds at least one record, and none was given to stage"
            )
        sealed = self._seal(records, now)
        segment_id = sealed.header.id.hex()
        file = staging.file_name("stage", segment_id)
        staging.write(self._staging / file, sealed, sync=self.sync)
        if self.sync:
            description.sync_folder(self._staging)
        return StagedSegment(segment_id, partition, file, len(records), sealed.size)

    def publish(self, staged: Sequence[StagedSegment], since: Sequence[int]) -> None:
        """Make staged segments visible, in order, each exactly once however often this is called.

        ``since`` holds for each partition its end when the publishing was decided (see ``ends``): a segment
        that an interrupted call published is found at or after that position.
        """
        if len(since) != self.partitions:
            raise LogError(
                f"log {self.name!r} has {self.partitions} partitions: since must have as many positions, "
                f"not {len(since)}"
            )
        positions = list(since)
        for one in staged:
            target = self._partition(one.partition)
            header = self._staged_header(one)
            positions[one.partition] = target.publish_once(
                self._staging / one.file, header, positions[one.partition]
            )

    def discard_staged(self, older_than_seconds: float) -> int:
        """Delete every file in staging that is older, and return how many.

        Only for files that nobody will publish any more: a staged segment that is deleted is lost.
        """
        return staging.discard(self._staging, older_than_seconds, ("append", "stage"))

    def clean(self, older_than_seconds: float = 3600.0) -> int:
        """Delete what crashed producers left behind, and return how many files. Staged segments stay."""
        return staging.discard(self._staging, older_than_seconds, ("append",))

    def stat(self, verify: bool = False) -> LogStat:
        """The log in numbers, from its headers; with ``verify`` every segment is read. Damage is reported."""
        return LogStat(self.name, [stat.inspect(partition, verify=verify) for partition in self._partitions])

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}, partitions={self.partitions})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (str(self.path), self.sync))

    def _partition(self, number: int) -> Partition:
        if not 0 <= number < self.partitions:
            raise LogError(
                f"log {self.name!r} has no partition {number}: it has {self.partitions}, numbered from 0"
            )
        return self._partitions[number]

    def _seal(self, records: Sequence[Record], now: float | None) -> Sealed:
        return segment.seal(os.urandom(16), records, time.time() if now is None else now)

    def _staged_header(self, staged: StagedSegment) -> Header:
        wanted = Header(bytes.fromhex(staged.id), staged.count, staged.bytes - HEADER_SIZE, 0)
        path = self._staging / staged.file
        try:
            found, size = segment.read_header(path)
            segment.check_size(found, size)
        except FileNotFoundError:
            return wanted  # published by an earlier call, or lost: the partition knows
        except DamageError as error:
            raise LogError(f"log {self.name!r}: the staged file {path} is damaged: {error}") from error
        if (found.id, found.count) != (wanted.id, wanted.count):
            raise LogError(f"log {self.name!r}: the staged file {path} is not the segment it should be")
        return found


def _never() -> bool:
    return False


def _reopen(path: str, sync: bool) -> Log:
    return Log.open(path, sync=sync)
