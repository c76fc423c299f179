"""The log: named, partitioned, append-only.

A full disk is reported as a LogError that says what did not happen.
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

# A quota and a limit on the size of a file end a write as a full disk does.
_NO_ROOM = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "no space left in the user's quota",
    errno.EFBIG: "no space left: the file would be larger than the limit that is set for this process",
}


@contextmanager
def disk_full_as_log_error(log: str, consequence: str) -> Iterator[None]:
    """Turn the lack of room into a ``LogError`` that says what has not happened.

    >>> with disk_full_as_log_error("orders", "nothing was appended"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    penstock.errors.LogError: log 'orders': no space left on the device: nothing was appended. Make room, or \
let retention make some (`penstock log retain orders --bytes …`), and try again
    """
    try:
        yield
    except OSError as error:
        cause = _NO_ROOM.get(error.errno or 0)
        if cause is None:
            raise
        raise LogError(
            f"log {log!r}: {cause}: {consequence}. Make room, or let retention make some"
            f" (`penstock log retain {log} --bytes …`), and try again"
        ) from error


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

    def __init__(
        self, path: Path, found: Description, *, fsync: Fsync | None = None, upkeep: bool = True
    ) -> None:
        """Use ``Log.create`` or ``Log.open``, which look at the folder."""
        self.path = path
        self.partitions = found.partitions
        self.id = found.id
        """32 random hex digits, given when the log was made; None in a log of the first format."""
        self.fsync: Fsync = fsync or found.fsync
        self.upkeep = upkeep
        self._fsync_here = fsync
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
        self._upkeep = LogMaintenance(path, self._partitions, self._readers)
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
        """Make a log, of one partition unless told otherwise.

        With ``exist_ok`` an existing log is opened as it is; if ``partitions`` is given, it must have that
        many. ``fsync`` says how much an append waits for the disk: ``none`` (the default), ``segment`` or
        ``full``; see ``penstock.log.log_description``. The three that begin with ``retain`` say what the log
        keeps, see ``penstock.log.retention``.
        """
        level = read_fsync("none" if fsync is None else fsync)
        retention = Retention(retain_bytes, retain_seconds, retain_consumed)
        folder = Path(path).absolute()
        try:
            with disk_full_as_log_error(folder.name, "the log was not made"):
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
        """Use a log that exists; ``LogNotFoundError`` says how to make one.

        ``fsync`` stands in for the level that the log was made with. Without ``upkeep``, appending never
        applies retention and never merges small segments; others may.
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
        pending = [
            self._staging / segment_staging.file_name("append", part.header.id.hex()) for _, part in sealed
        ]
        try:
            with disk_full_as_log_error(
                self.name, "what was to be appended is whole or absent in each partition"
            ):
                for path, (_, part) in zip(pending, sealed, strict=True):
                    segment_staging.write(path, part, sync=self.fsync != "none")
                for path, (target, part) in zip(pending, sealed, strict=True):
                    target.publish(path, part.header)
        except BaseException:
            for path in pending:
                path.unlink(missing_ok=True)
            raise
        self._keep_up()

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

    def stage(
        self,
        partition: int,
        records: Sequence[Record],
        now: float | None = None,
        owner: str | None = None,
    ) -> StagedSegment:
        """Write one or more records as a sealed segment that nobody sees before it is published.

        Its ``owner`` can discard it without those of others.
        """
        check_records(records)
        self._partition(partition)
        if not records:
            raise LogError(
                f"log {self.name!r}: a segment holds at least one record, and none was given to stage"
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
            with disk_full_as_log_error(self.name, "a segment is staged and not published"):
                positions[one.partition] = target.publish_once(
                    self._staging / one.file, header, positions[one.partition]
                )
        self._keep_up()

    def unstage(self, staged: Sequence[StagedSegment]) -> None:
        """Delete staged segments that will not be published."""
        for one in staged:
            (self._staging / one.file).unlink(missing_ok=True)

    def discard_staged(self, older_than_seconds: float, owner: str | None = None) -> int:
        """Delete every file in staging that is older, and return how many. With an ``owner``, only its own.

        Only for files that nobody will publish any more: a staged segment that is deleted is lost.
        """
        return segment_staging.discard(
            self._staging, older_than_seconds, ("stage", *segment_staging.WORTHLESS), owner
        )

    def clean(self, older_than_seconds: float = 3600.0) -> int:
        """Delete what crashed producers left behind, and return how many files. Staged segments stay."""
        return segment_staging.discard(self._staging, older_than_seconds, segment_staging.WORTHLESS)

    @property
    def retention(self) -> Retention:
        """What the log keeps, as its folder says now."""
        return log_description.read(self.path).retention

    def set_retention(self, retention: Retention) -> None:
        """Change what the log keeps. It is applied now and then by whoever appends, and by ``retain``."""
        with disk_full_as_log_error(self.name, "its settings are as they were"):
            self.id = log_description.change(self.path, retention).id

    def retain(self, now: float | None = None) -> list[Cut]:
        """Delete what the log no longer keeps, whole segments from the front, and say what and why."""
        return self._upkeep.retain(time.time() if now is None else now)

    def compact(self) -> list[Compacted]:
        """Merge small segments. Positions, order and content of the records stay what they are."""
        with disk_full_as_log_error(self.name, "some small segments were not merged"):
            done = self._upkeep.compact()
        self.id = log_description.read(self.path).id
        return done

    def readers(self) -> list[Reader]:
        """Who reads the log and how far they are, by name."""
        return self._readers.all()

    def note_reader(self, name: str, positions: Mapping[int, int], now: float | None = None) -> None:
        """Write down that a reader needs nothing before some positions any more."""
        with disk_full_as_log_error(self.name, f"the position of reader {name!r} was not noted"):
            self._readers.note(name, positions, now)

    def forget_reader(self, name: str) -> None:
        """Remove a reader that will not return, so that it does not delay retention."""
        if not self._readers.forget(name):
            known = ", ".join(repr(reader.name) for reader in self.readers()) or "none"
            raise LogError(f"log {self.name!r} has no reader {name!r}: it has {known}")

    def same(self) -> bool:
        """Whether the log in the folder is still the one that was opened, and not one made anew."""
        stamp = log_description.stamp(self.path)
        if stamp != self._stamp:
            found = log_description.read(self.path)
            if found.partitions != self.partitions or (self.id is not None and found.id != self.id):
                return False
            self.id, self._stamp = found.id, stamp
        return True

    def _keep_up(self) -> None:
        began = time.monotonic()
        if self.upkeep and self._pace.due(began):
            # The records are in the log. Whatever hinders upkeep must not tell the producer otherwise; it
            # meets its cause again, or `penstock log stat` finds it.
            with suppress(LogError, OSError):
                self._upkeep.some()
            ended = time.monotonic()
            self._pace.took(ended - began, ended)

    def stat(self, verify: bool = False) -> LogStat:
        """The log in numbers, from its headers; with ``verify`` every segment is read. Damage is reported."""
        found = log_description.read(self.path)
        partitions = [log_stat.inspect(partition, verify=verify) for partition in self._partitions]
        readers = [log_stat.lag(reader, partitions) for reader in self.readers()]
        return LogStat(self.name, found.id, self.fsync, found.retention, partitions, readers)

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}, partitions={self.partitions})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (str(self.path), self._fsync_here, self.upkeep))

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
            return wanted  # published by an earlier call, or lost: the partition knows
        except SegmentDamageError as error:
            raise LogError(f"log {self.name!r}: the staged file {path} is damaged: {error}") from error
        if (found.id, found.count) != (wanted.id, wanted.count):
            raise LogError(f"log {self.name!r}: the staged file {path} is not the segment it should be")
        return found


def _never() -> bool:
    return False


def _reopen(path: str, fsync: Fsync | None, upkeep: bool) -> Log:
    return Log.open(path, fsync=fsync, upkeep=upkeep)
