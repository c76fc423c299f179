"""Statistics of a log, and its damaged segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LogCorruptionError
from penstock.log import segment
from penstock.log.log_description import Fsync
from penstock.log.partition import Partition
from penstock.log.reader_positions import Reader
from penstock.log.retention import Retention
from penstock.log.segment import SegmentDamageError


@dataclass(frozen=True)
class PartitionStat:
    """Statistics of a partition. ``end`` is the first position that no readable header covers."""

    partition: int
    begin: int
    end: int
    records: int
    segments: int
    bytes: int
    damaged: list[tuple[int, str]]
    """Position and cause of every damaged or missing segment."""


@dataclass(frozen=True)
class ReaderStat:
    """Statistics of a reader."""

    name: str
    positions: dict[int, int]
    lag: int
    """How many records it has not read yet, including those that retention has deleted."""
    time: float
    """When it last stored its positions, in seconds since the epoch."""


@dataclass(frozen=True)
class LogStat:
    """Statistics of a log."""

    name: str
    id: str | None
    """32 hex digits, different for every log, also for a log created again under the same name."""
    fsync: Fsync
    retention: Retention
    partitions: list[PartitionStat]
    readers: list[ReaderStat]

    @property
    def damaged(self) -> bool:
        return any(partition.damaged for partition in self.partitions)


def inspect(partition: Partition, *, verify: bool) -> PartitionStat:
    """Read every segment's header, or with ``verify`` every segment; report damage instead of raising."""
    # Without the lock, a segment merged during the scan would be reported as missing.
    with partition.name_lock.shared():
        return _inspect(partition, verify)


def _inspect(partition: Partition, verify: bool) -> PartitionStat:
    starts = partition.listed()
    size = 0
    records = 0
    damaged: list[tuple[int, str]] = []
    expected: int | None = starts[0] if starts else 0
    for position in starts:
        if expected is not None and position > expected:
            damaged.append((expected, "the file is missing"))
        try:
            header, length = segment.read_header(partition.file(position))
        except SegmentDamageError as error:
            damaged.append((position, str(error)))
            size += Path(partition.file(position)).stat().st_size
            expected = None
            continue
        size += length
        end = position + header.count
        # A crash during compaction can leave records in two files; count them once.
        records += max(0, end - max(position, expected or 0))
        expected = max(end, expected or 0)
        try:
            segment.check_size(header, length)
            if verify:
                partition.load(position)
        except SegmentDamageError as error:
            damaged.append((position, str(error)))
        except LogCorruptionError as error:
            damaged.append((position, error.cause))
    begin = starts[0] if starts else 0
    end = expected if expected is not None else starts[-1]
    return PartitionStat(partition.number, begin, end, records, len(starts), size, damaged)


def lag(reader: Reader, partitions: Sequence[PartitionStat]) -> ReaderStat:
    """Compute how many records a reader has yet to read."""
    waiting = sum(max(0, one.end - reader.positions.get(one.partition, one.begin)) for one in partitions)
    return ReaderStat(reader.name, reader.positions, waiting, reader.time)
