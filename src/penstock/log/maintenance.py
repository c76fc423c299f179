"""Maintenance of a log: compaction, retention, removal of temporary files, and its schedule in producers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LogCorruptionError
from penstock.log import log_description, segment, segment_staging
from penstock.log.partition import Partition
from penstock.log.reader_positions import ReaderPositions, consumed_by_all
from penstock.log.retention import Cut, SegmentFacts, decide
from penstock.log.segment import SegmentDamageError

FULL_SEGMENT = 8 << 20
"""Segments of this many bytes are not merged further: a segment is read as a whole, even for one record."""

AUTOMATIC_MIN_RUN = 32
"""How many adjacent small segments automatic maintenance needs before it merges them."""

_TIERS = (1 << 16, 1 << 20, FULL_SEGMENT)
_WINDOW = 1024


@dataclass(frozen=True)
class Piece:
    """What compaction knows of a segment: its positions, size and modification time."""

    start: int
    count: int
    bytes: int
    time: float

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True)
class Compacted:
    """Number of segments of a partition before and after compaction."""

    partition: int
    before: int
    after: int


def plan_merges(pieces: Sequence[Piece], least: int) -> list[list[Piece]]:
    """Return the runs to merge, each into one segment: ``least`` or more adjacent small segments.

    Segments are merged by size tier, smallest first, so that a large merged segment is not rewritten each
    time that a few new records arrive.

    >>> small = [Piece(start, 10, 100, 0.0) for start in range(0, 40, 10)]
    >>> [[piece.start for piece in run] for run in plan_merges(small, least=2)]
    [[0, 10, 20, 30]]
    >>> plan_merges(small, least=5)
    []
    """
    for limit in _TIERS:
        runs = [
            group
            for row in _adjacent_small(pieces, limit)
            if len(row) >= least
            for group in _split_by_size(row)
            if len(group) > 1
        ]
        if runs:
            return runs
    return []


def superseded_starts(pieces: Sequence[Piece]) -> list[int]:
    """Return the positions of segments whose records an earlier, longer one contains.

    A crash during compaction leaves them.
    """
    found = []
    reach = 0
    for piece in pieces:
        if piece.end <= reach:
            found.append(piece.start)
        reach = max(reach, piece.end)
    return found


def _adjacent_small(pieces: Sequence[Piece], limit: int) -> Iterator[list[Piece]]:
    row: list[Piece] = []
    for piece in pieces:
        if row and (piece.start != row[-1].end or piece.bytes >= limit):
            yield row
            row = []
        if piece.bytes < limit:
            row.append(piece)
    if row:
        yield row


def _split_by_size(row: Sequence[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    size = 0
    for piece in row:
        if group and size + piece.bytes > FULL_SEGMENT:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.bytes
    if group:
        yield group


class Compactor:
    """Compacts one partition, one window of segments at a time."""

    def __init__(self, partition: Partition, staging_folder: Path) -> None:
        self._partition = partition
        self._staging = staging_folder
        self._settled = 0

    def step(self, least: int = AUTOMATIC_MIN_RUN) -> bool:
        """Merge the oldest run of small segments or advance the window; False when nothing is left to do."""
        starts, generation = self._partition.snapshot()
        # Never merge the newest segment: its name marks the end of the partition.
        waiting = [start for start in starts[:-1] if start >= self._settled]
        pieces = self._pieces(waiting[:_WINDOW])
        extra = superseded_starts(pieces)
        if extra:
            return self._remove(extra, generation)
        runs = plan_merges(pieces, least)
        if runs:
            return self._merge(runs[0], generation)
        if len(waiting) > _WINDOW:
            self._settled = waiting[_WINDOW // 2]
            return True
        return False

    def merge_all(self) -> Compacted:
        """Merge all small segments."""
        before = len(self._partition.listed())
        self._settled = 0
        while self.step(least=2):
            pass
        self._settled = 0
        return Compacted(self._partition.number, before, len(self._partition.listed()))

    def _pieces(self, starts: Sequence[int]) -> list[Piece]:
        pieces = []
        for start in starts:
            file = self._partition.file(start)
            # Skip a damaged segment, which ends the run before it, and a missing one, which has been merged.
            with suppress(SegmentDamageError, FileNotFoundError):
                header, size = segment.read_header(file)
                pieces.append(Piece(start, header.count, size, Path(file).stat().st_mtime))
        return pieces

    def _merge(self, run: Sequence[Piece], generation: int) -> bool:
        segments = []
        for piece in run:
            try:
                loaded = self._partition.load(piece.start)
            except LogCorruptionError:
                self._settled = piece.end
                return True
            if loaded is None or loaded.header.count != piece.count:
                return True  # another process has merged it
            segments.append(loaded)
        segment_id = os.urandom(16)
        merged = self._staging / segment_staging.file_name("merge", segment_id.hex())
        segment_staging.write(merged, segment.merge(segment_id, segments), sync=True)
        try:
            # Retention by age uses the modification time: keep that of the newest segment.
            newest = max(piece.time for piece in run)
            os.utime(merged, (newest, newest))
            self._partition.swap([piece.start for piece in run], merged, generation)
        finally:
            merged.unlink(missing_ok=True)
        return True

    def _remove(self, positions: Sequence[int], generation: int) -> bool:
        with self._partition.name_lock.exclusive() as held:
            if held.generation == generation:
                held.advance()
                for position in positions:
                    self._partition.remove(position)
        return True


_MIN_INTERVAL = 1.0
_MAX_INTERVAL = 10.0
_SEGMENTS_PER_STEP = 32
_MAX_TIME_SHARE = 0.05
_ABANDONED_AFTER = 3600.0


class Pace:
    """Decides when a producer runs a maintenance step: every 32 segments or 10 s, at most once a second.

    Maintenance gets at most 5 % of a producer's time: after a slow step the next one is delayed.

    >>> pace = Pace()
    >>> pace.due(now=100.0), pace.due(now=100.5), pace.due(now=111.0)
    (True, False, True)
    >>> pace.record_duration(seconds=2.0, now=113.0)
    >>> pace.due(now=125.0), pace.due(now=153.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._pause = _MIN_INTERVAL
        self._segments = 0

    def due(self, now: float) -> bool:
        self._segments += 1
        since = max(_MAX_INTERVAL, self._pause) if self._last is None else now - self._last
        if since < max(_MIN_INTERVAL, self._pause):
            return False
        if since < _MAX_INTERVAL and self._segments < _SEGMENTS_PER_STEP:
            return False
        self._last, self._segments = now, 0
        return True

    def record_duration(self, seconds: float, now: float) -> None:
        """Set the pause before the next step from the duration of the last one."""
        self._last, self._pause = now, seconds / _MAX_TIME_SHARE


class LogMaintenance:
    """Retention and compaction of one log."""

    def __init__(self, path: Path, partitions: Sequence[Partition], readers: ReaderPositions) -> None:
        self._path = path
        self._partitions = partitions
        self._readers = readers
        self._staging = path / log_description.STAGING
        self._compactors = [Compactor(partition, self._staging) for partition in partitions]

    def step(self) -> None:
        """Do a part of the outstanding maintenance, small enough not to delay a producer noticeably."""
        segment_staging.discard(self._staging, _ABANDONED_AFTER, segment_staging.TEMPORARY)
        if log_description.read(self._path).version == log_description.OLD:
            return  # a producer that does not take the lock may be appending: see upgrade
        self.retain(time.time())
        for compactor in self._compactors:
            compactor.step()

    def retain(self, now: float) -> list[Cut]:
        """Apply the log's retention settings, and return what was deleted and why."""
        retention = log_description.read(self._path).retention
        if not retention.deletes:
            return []
        snapshots = {partition.number: partition.snapshot() for partition in self._partitions}
        facts = {number: self._facts(number, starts) for number, (starts, _) in snapshots.items()}
        consumed = consumed_by_all(self._readers.all(), len(self._partitions)) if retention.consumed else {}
        done = []
        for cut in decide(facts, retention, consumed, now):
            through = facts[cut.partition][cut.segments - 1].start
            if self._partitions[cut.partition].cut(through, snapshots[cut.partition][1]):
                done.append(cut)
        return done

    def compact(self) -> list[Compacted]:
        """Merge all small segments."""
        log_description.upgrade(self._path)
        return [compactor.merge_all() for compactor in self._compactors]

    def _facts(self, number: int, starts: Sequence[int]) -> list[SegmentFacts]:
        facts: list[SegmentFacts] = []
        ends = [*starts[1:], starts[-1]] if starts else []
        for start, end in zip(starts, ends, strict=True):
            try:
                status = Path(self._partitions[number].file(start)).stat()
            except FileNotFoundError:
                break  # removed by another process; the changed generation will reject the cut
            facts.append(SegmentFacts(start, end, status.st_size, status.st_mtime))
        return facts
