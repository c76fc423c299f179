"""The log: named, partitioned, append-only.

A full disk is reported as a LogError that names the operation which failed.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import LogError, LogExistsError
from penstock.local_files import sync
from penstock.log import log_description, log_stat, segment, segment_staging
from penstock.log.folder_watch import Watch
from penstock.log.log_description import Description, Fsync, read_fsync
from penstock.log.log_stat import LogStat
from penstock.log.maintenance import Compacted, LogMaintenance, Pace
from penstock.log.partition import Partition
from penstock.log.reader_positions import Reader, ReaderPositions
from penstock.log.record_router import Router, check_records
from penstock.log.retention import Cut, Retention
from penstock.log.segment import HEADER_SIZE, Header, Sealed, SegmentDamageError
from penstock.log.segment_staging import StagedSegment
from penstock.record import Record

# An exceeded quota or file size limit fails a write just as a full disk does.
_DISK_FULL = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "no space left in the user's quota",
    errno.EFBIG: "no space left: the file would exceed this process's file size limit",
}


@contextmanager
def disk_full_as_log_error(log: str, consequence: str) -> Iterator[None]:
    """Convert a disk-full error into a ``LogError`` that states the consequence.

    >>> with disk_full_as_log_error("orders", "nothing was appended"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    penstock.errors.LogError: log 'orders': no space left on the device: nothing was appended. Free some \
disk space, or let retention do it (`penstock log retain orders --bytes …`), and try again
    """
    try:
        yield
    except OSError as error:
        cause = _DISK_FULL.get(error.errno or 0)
        if cause is None:
            raise
        raise LogError(
            f"log {log!r}: {cause}: {consequence}. Free some disk space, or let retention do it"
            f" (`penstock log retain {log} --bytes …`), and try again"
        ) from error


class Log:
    """An append-only, partitioned log in a folder.

    Any number of processes may append and read at the same time. Within a partition the records have
    positions 0, 1, 2, …; the records that one append adds to a partition become visible all at once or not
    at all.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = Log.create(f"{folder.name}/orders")
    >>> log.append([Record("ann", 3), Record("bob", 5)], now=1.5)
    >>> [record for chunk in log.read(0, start=0) for record in chunk]
    [Record(key='ann', value=3, ts=1.5), Record(key='bob', value=5, ts=1.5)]
    >>> log.begin(0), log.end(0)
    (0, 2)
    """

    def __init__(
        self, path: Path, found: Description, *, fsync: Fsync | None = None, upkeep: bool = True
    ) -> None:
        """Use ``Log.create`` or ``Log.open`` instead: they read the folder."""
        self.path = path
        self.partitions = found.partitions
        self.id = found.id
        """32 random hex digits, set when the log is created; None in a log of format version 1."""
        self.fsync: Fsync = fsync or found.fsync
        self.upkeep = upkeep
        self._fsync_override = fsync
        self._staging = path / log_description.STAGING
        self._partitions = [
            Partition(
                path.name,
                number,
                path / log_description.partition_folder(number),
                self._staging,
                fsync=self.fsync,
            )
            for number in range(found.partitions)
        ]
        self._router = Router(found.partitions)
        self._readers = ReaderPositions(path / log_description.READERS, self._staging)
        self._maintenance = LogMaintenance(path, self._partitions, self._readers)
        self._pace = Pace()
        self._stamp = log_description.stamp(path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        partitions: int | None = None,
        exist_ok: bool = False,
        *,
        fsync: Fsync | None = None,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        retain_consumed: bool = False,
        upkeep: bool = True,
    ) -> Log:
        """Create a log, with one partition by default.

        With ``exist_ok`` an existing log is opened unchanged; if ``partitions`` is given, it must have that
        many. ``fsync`` sets what an append flushes to disk before it returns: ``none`` (the default),
        ``segment`` or ``full``; see ``penstock.log.log_description``. The ``retain_…`` arguments set the
        retention rules; see ``penstock.log.retention``.
        """
        level = read_fsync("none" if fsync is None else fsync)
        retention = Retention(retain_bytes, retain_seconds, retain_consumed)
        folder = Path(path).absolute()
        try:
            with disk_full_as_log_error(folder.name, "the log was not created"):
                log_description.create(folder, 1 if partitions is None else partitions, level, retention)
        except LogExistsError:
            if not exist_ok:
                raise
        log = cls.open(folder, fsync=fsync, upkeep=upkeep)
        if partitions not in (None, log.partitions):
            raise LogExistsError(f"the log at {folder} has {log.partitions} partitions, not {partitions}")
        return log

    @classmethod
    def open(cls, path: str | Path, *, fsync: Fsync | None = None, upkeep: bool = True) -> Log:
        """Open an existing log, or raise ``LogNotFoundError``, whose message tells how to create it.

        ``fsync`` overrides the level that the log was created with. With ``upkeep=False``, appends through
        this object never apply retention or merge small segments; other processes still may.
        """
        folder = Path(path).absolute()
        level = None if fsync is None else read_fsync(fsync)
        return cls(folder, log_description.read(folder), fsync=level, upkeep=upkeep)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    def append(
        self, records: Sequence[Record], partition: int | None = None, *, now: float | None = None
    ) -> None:
        """Append records: one segment for each partition that gets any.

        Without ``partition``, a record's partition is chosen by the hash of its key; all records of a call
        whose key is None go to the same partition, chosen round-robin from call to call. A record without a
        time gets ``now``. When this returns, the records are in the log; when it raises, each partition has
        either all of its records or none.
        """
        check_records(records)
        if not records:
            return
        routed = self._router.route(records) if partition is None else {partition: records}
        # Encode everything before writing anything, so that an unstorable value leaves the log unchanged.
        sealed = [(self._partition(number), self._seal(part, now)) for number, part in routed.items()]
        pending = [
            self._staging / segment_staging.file_name("append", part.header.id.hex()) for _, part in sealed
        ]
        try:
            with disk_full_as_log_error(
                self.name, "each partition has either all of its new records or none of them"
            ):
                for path, (_, part) in zip(pending, sealed, strict=True):
                    segment_staging.write(path, part, sync=self.fsync != "none")
                for path, (target, part) in zip(pending, sealed, strict=True):
                    target.publish(path, part.header)
        except BaseException:
            for path in pending:
                path.unlink(missing_ok=True)
            raise
        self._maintain_if_due()

    def begin(self, partition: int) -> int:
        """Return the position of a partition's first record."""
        return self._partition(partition).begin()

    def end(self, partition: int) -> int:
        """Return the position that a partition's next record will get."""
        return self._partition(partition).end()

    def ends(self) -> list[int]:
        """Return the end of every partition, in partition order."""
        return [partition.end() for partition in self._partitions]

    def read(self, partition: int, start: int, end: int | None = None) -> Iterator[list[Record]]:
        """Yield lists of the records from position ``start`` up to ``end``, by default the current end.

        Each segment is verified completely before any of its records is returned.
        """
        return self._partition(partition).read(start, end)

    def tail(
        self,
        partition: int,
        start: int,
        stop: Callable[[], bool] | None = None,
        idle_timeout: float | None = None,
    ) -> Iterator[list[Record]]:
        """Yield lists of the records from position ``start`` on, and wait for new ones at the end.

        Ends when ``stop`` returns true, or when no record arrived for ``idle_timeout`` seconds.
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
        """Return a watch that wakes when one of the given partitions, by default any, may have grown."""
        numbers = range(self.partitions) if partitions is None else partitions
        return Watch([self._partition(number).folder for number in numbers])

    def stage(
        self,
        partition: int,
        records: Sequence[Record],
        now: float | None = None,
        owner: str | None = None,
    ) -> StagedSegment:
        """Write one or more records to a sealed segment that is not visible until it is published.

        With an ``owner``, ``discard_staged`` can delete it without the staged segments of others.
        """
        check_records(records)
        self._partition(partition)
        if not records:
            raise LogError(
                f"log {self.name!r}: a segment holds at least one record, but none was given to stage"
            )
        sealed = self._seal(records, now, owner)
        segment_id = sealed.header.id.hex()
        file = segment_staging.file_name("stage", segment_id)
        with disk_full_as_log_error(self.name, "nothing was staged"):
            segment_staging.write(self._staging / file, sealed, sync=self.fsync != "none")
        if self.fsync == "full":
            sync(self._staging)
        return StagedSegment(segment_id, partition, file, len(records), sealed.size)

    def publish(self, staged: Sequence[StagedSegment], since: Sequence[int]) -> None:
        """Make staged segments visible, in order; idempotent.

        ``since`` holds the end of each partition at the time the publish was decided (see ``ends``). A
        segment that an interrupted call has already published is searched for from that position on, and not
        published again.
        """
        if len(since) != self.partitions:
            raise LogError(
                f"log {self.name!r} has {self.partitions} partitions: since must have that many positions, "
                f"not {len(since)}"
            )
        positions = list(since)
        for one in staged:
            target = self._partition(one.partition)
            header = self._staged_header(one)
            with disk_full_as_log_error(self.name, "a staged segment was not published"):
                positions[one.partition] = target.publish_once(
                    self._staging / one.file, header, positions[one.partition]
                )
        self._maintain_if_due()

    def unstage(self, staged: Sequence[StagedSegment]) -> None:
        """Delete staged segments that will not be published."""
        for one in staged:
            (self._staging / one.file).unlink(missing_ok=True)

    def discard_staged(self, older_than_seconds: float, owner: str | None = None) -> int:
        """Delete staging files older than the given age, and return how many.

        With an ``owner``, staged segments of others are kept. A deleted staged segment is lost: call this
        only when nothing that old will be published any more.
        """
        return segment_staging.discard(
            self._staging, older_than_seconds, ("stage", *segment_staging.TEMPORARY), owner
        )

    def clean(self, older_than_seconds: float = 3600.0) -> int:
        """Delete temporary files of crashed producers and return how many. Staged segments are kept."""
        return segment_staging.discard(self._staging, older_than_seconds, segment_staging.TEMPORARY)

    @property
    def retention(self) -> Retention:
        """The retention settings, read from the log's folder."""
        return log_description.read(self.path).retention

    def set_retention(self, retention: Retention) -> None:
        """Change the retention settings. Producers apply them periodically, ``retain`` immediately."""
        with disk_full_as_log_error(self.name, "its settings were not changed"):
            self.id = log_description.change(self.path, retention).id

    def retain(self, now: float | None = None) -> list[Cut]:
        """Apply retention: delete whole segments from the front, and return what was deleted and why."""
        return self._maintenance.retain(time.time() if now is None else now)

    def compact(self) -> list[Compacted]:
        """Merge small segments. The records keep their positions, order and content."""
        with disk_full_as_log_error(self.name, "some small segments were not merged"):
            done = self._maintenance.compact()
        self.id = log_description.read(self.path).id
        return done

    def readers(self) -> list[Reader]:
        """Return the log's readers and their positions, sorted by name."""
        return self._readers.all()

    def note_reader(self, name: str, positions: Mapping[int, int], now: float | None = None) -> None:
        """Store the positions before which a reader needs nothing any more."""
        with disk_full_as_log_error(self.name, f"the position of reader {name!r} was not stored"):
            self._readers.note(name, positions, now)

    def forget_reader(self, name: str) -> None:
        """Remove a reader that will not read again, so that retention does not wait for it."""
        if not self._readers.forget(name):
            known = ", ".join(repr(reader.name) for reader in self.readers()) or "none"
            raise LogError(f"log {self.name!r} has no reader {name!r}: known readers: {known}")

    def is_same(self) -> bool:
        """Return whether the folder still holds the log that was opened, not one created in its place."""
        stamp = log_description.stamp(self.path)
        if stamp != self._stamp:
            found = log_description.read(self.path)
            if found.partitions != self.partitions or (self.id is not None and found.id != self.id):
                return False
            self.id, self._stamp = found.id, stamp
        return True

    def _maintain_if_due(self) -> None:
        began = time.monotonic()
        if self.upkeep and self._pace.due(began):
            # The append has succeeded, so a failed maintenance step must not fail it. A later step or
            # `penstock log stat` reports the cause.
            with suppress(LogError, OSError):
                self._maintenance.step()
            ended = time.monotonic()
            self._pace.record_duration(ended - began, ended)

    def stat(self, verify: bool = False) -> LogStat:
        """Return the log's statistics from the segment headers; with ``verify``, read every segment.

        Damage is reported in the result, not raised.
        """
        found = log_description.read(self.path)
        partitions = [log_stat.inspect(partition, verify=verify) for partition in self._partitions]
        readers = [log_stat.lag(reader, partitions) for reader in self.readers()]
        return LogStat(self.name, found.id, self.fsync, found.retention, partitions, readers)

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}, partitions={self.partitions})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (str(self.path), self._fsync_override, self.upkeep))

    def _partition(self, number: int) -> Partition:
        if not 0 <= number < self.partitions:
            raise LogError(
                f"log {self.name!r} has no partition {number}: it has {self.partitions}, numbered from 0"
            )
        return self._partitions[number]

    def _seal(self, records: Sequence[Record], now: float | None, owner: str | None = None) -> Sealed:
        return segment.seal(segment_staging.new_id(owner), records, time.time() if now is None else now)

    def _staged_header(self, staged: StagedSegment) -> Header:
        wanted = Header(bytes.fromhex(staged.id), staged.count, staged.bytes - HEADER_SIZE, 0)
        path = self._staging / staged.file
        try:
            found, size = segment.read_header(path)
            segment.check_size(found, size)
        except FileNotFoundError:
            return wanted  # published by an earlier call, or lost: publish_once finds out which
        except SegmentDamageError as error:
            raise LogError(f"log {self.name!r}: the staged file {path} is damaged: {error}") from error
        if (found.id, found.count) != (wanted.id, wanted.count):
            raise LogError(f"log {self.name!r}: the staged file {path} holds another segment than expected")
        return found


def _never() -> bool:
    return False


def _reopen(path: str, fsync: Fsync | None, upkeep: bool) -> Log:
    return Log.open(path, fsync=fsync, upkeep=upkeep)
