"""Maintenance of a log.

Compaction of small segments, retention, removal of leftovers, and how often producers do a step of it.
"""

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
from penstock.log.retention import Cut, Retention, SegmentFacts, decide
from penstock.log.segment import SegmentDamageError

FULL_SEGMENT = 8 << 20
"""Bytes of a segment that is large enough: it is read as a whole, even for a single record."""

ENOUGH = 32
"""How many small segments in a row are worth the work, when nobody has asked for it."""

_TIERS = (1 << 16, 1 << 20, FULL_SEGMENT)
_WINDOW = 1024


@dataclass(frozen=True)
class Piece:
    """A segment as compaction sees it."""

    start: int
    count: int
    bytes: int
    time: float

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True)
class Compacted:
    """What compaction has done to a partition."""

    partition: int
    before: int
    after: int


def plan_merges(pieces: Sequence[Piece], least: int) -> list[list[Piece]]:
    """The runs to merge, each into one segment: small neighbours, ``least`` or more of them in a row.

    The smallest are merged first and among themselves, so that no record is written again and again
    together with few new ones.

    >>> small = [Piece(start, 10, 100, 0.0) for start in range(0, 40, 10)]
    >>> [[piece.start for piece in run] for run in plan_merges(small, least=2)]
    [[0, 10, 20, 30]]
    >>> plan_merges(small, least=5)
    []
    """
    for limit in _TIERS:
        runs = [
            group
            for row in _rows(pieces, limit)
            if len(row) >= least
            for group in _groups(row)
            if len(group) > 1
        ]
        if runs:
            return runs
    return []


def superseded_starts(pieces: Sequence[Piece]) -> list[int]:
    """The positions of segments whose records an earlier, longer one has: what a crash has left."""
    found = []
    reach = 0
    for piece in pieces:
        if piece.end <= reach:
            found.append(piece.start)
        reach = max(reach, piece.end)
    return found


def _rows(pieces: Sequence[Piece], limit: int) -> Iterator[list[Piece]]:
    row: list[Piece] = []
    for piece in pieces:
        if row and (piece.start != row[-1].end or piece.bytes >= limit):
            yield row
            row = []
        if piece.bytes < limit:
            row.append(piece)
    if row:
        yield row


def _groups(row: Sequence[Piece]) -> Iterator[list[Piece]]:
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
    """Compacts one partition, a window of its segments at a time."""

    def __init__(self, partition: Partition, staging_folder: Path) -> None:
        self._partition = partition
        self._staging = staging_folder
        self._settled = 0

    def step(self, least: int = ENOUGH) -> bool:
        """Merge one run of the oldest small segments, or look further; False when there is nothing to do."""
        starts, generation = self._partition.snapshot()
        # The newest segment stays as it is: its name tells where the partition ends.
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

    def all(self) -> Compacted:
        """Merge whatever is small."""
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
            # A damaged segment is left as it is, and ends the run before it; a missing one was merged.
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
                return True  # somebody else has merged it
            segments.append(loaded)
        segment_id = os.urandom(16)
        merged = self._staging / segment_staging.file_name("merge", segment_id.hex())
        segment_staging.write(merged, segment.merge(segment_id, segments), sync=True)
        try:
            # It is as old as the youngest that is in it.
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


_SHORTEST = 1.0
_LONGEST = 10.0
_MANY = 32
_SHARE = 0.05
_ABANDONED = 3600.0


class Pace:
    """Says now and then that upkeep is due: after many segments or ten seconds, but never twice a second.

    Upkeep gets a twentieth of a producer's time at the most: when a round was slow, the next one waits.

    >>> pace = Pace()
    >>> pace.due(now=100.0), pace.due(now=100.5), pace.due(now=111.0)
    (True, False, True)
    >>> pace.took(seconds=2.0, now=113.0)
    >>> pace.due(now=125.0), pace.due(now=153.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._rest = _SHORTEST
        self._segments = 0

    def due(self, now: float) -> bool:
        self._segments += 1
        since = max(_LONGEST, self._rest) if self._last is None else now - self._last
        if since < max(_SHORTEST, self._rest) or (since < _LONGEST and self._segments < _MANY):
            return False
        self._last, self._segments = now, 0
        return True

    def took(self, seconds: float, now: float) -> None:
        self._last, self._rest = now, seconds / _SHARE


class LogMaintenance:
    """Retention and compaction of one log."""

    def __init__(self, path: Path, partitions: Sequence[Partition], readers: ReaderPositions) -> None:
        self._path = path
        self._partitions = partitions
        self._readers = readers
        self._staging = path / log_description.STAGING
        self._compactors = [Compactor(partition, self._staging) for partition in partitions]

    def some(self) -> None:
        """Do a part of what is to be done, small enough that a producer does not notice."""
        segment_staging.discard(self._staging, _ABANDONED, segment_staging.WORTHLESS)
        if log_description.read(self._path).version == log_description.OLD:
            return  # a process that knows no lock may be appending: see upgrade
        self.retain(time.time())
        for compactor in self._compactors:
            compactor.step()

    def retain(self, now: float) -> list[Cut]:
        """Delete what the log's settings no longer keep, and say what and why."""
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
        return [compactor.all() for compactor in self._compactors]

    def set_retention(self, retention: Retention) -> None:
        """Replace what the log keeps."""
        log_description.change(self._path, retention)

    def _facts(self, number: int, starts: Sequence[int]) -> list[SegmentFacts]:
        facts: list[SegmentFacts] = []
        ends = [*starts[1:], starts[-1]] if starts else []
        for start, end in zip(starts, ends, strict=True):
            try:
                status = Path(self._partitions[number].file(start)).stat()
            except FileNotFoundError:
                break  # taken away by another process since; its generation tells
            facts.append(SegmentFacts(start, end, status.st_size, status.st_mtime))
        return facts
