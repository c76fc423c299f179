"""What keeps a log small: retention, compaction, and the removal of what crashed producers left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.log import description, staging
from penstock.log.compaction import Compacted, Compactor
from penstock.log.partition import Partition
from penstock.log.readers import ReaderPositions, consumed_by_all
from penstock.log.retention import Cut, Retention, SegmentFacts, decide

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
        self._staging = path / description.STAGING
        self._compactors = [Compactor(partition, self._staging) for partition in partitions]

    def some(self) -> None:
        """Do a part of what is to be done, small enough that a producer does not notice."""
        staging.discard(self._staging, _ABANDONED, staging.WORTHLESS)
        if description.read(self._path).version == description.OLD:
            return  # a process that knows no lock may be appending: see upgrade
        self.retain(time.time())
        for compactor in self._compactors:
            compactor.step()

    def retain(self, now: float) -> list[Cut]:
        """Delete what the log's settings no longer keep, and say what and why."""
        retention = description.read(self._path).retention
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
        description.upgrade(self._path)
        return [compactor.all() for compactor in self._compactors]

    def set_retention(self, retention: Retention) -> None:
        """Replace what the log keeps."""
        description.change(self._path, retention)

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
