"""What is in a log, and whether it is sound."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import LogCorruptionError
from penstock.log import segment
from penstock.log.partition import Partition
from penstock.log.segment import DamageError


@dataclass(frozen=True)
class PartitionStat:
    """One partition in numbers. ``end`` is the first position that nothing sound vouches for."""

    partition: int
    begin: int
    end: int
    records: int
    segments: int
    bytes: int
    damaged: list[tuple[int, str]]
    """Position and cause of every damaged or missing segment."""


@dataclass(frozen=True)
class LogStat:
    """A log in numbers."""

    name: str
    partitions: list[PartitionStat]

    @property
    def damaged(self) -> bool:
        return any(partition.damaged for partition in self.partitions)


def inspect(partition: Partition, *, verify: bool) -> PartitionStat:
    """Read every segment's header, or with ``verify`` every segment; damage is reported, not raised."""
    starts = partition.listed()
    size = 0
    records = 0
    damaged: list[tuple[int, str]] = []
    expected: int | None = starts[0] if starts else 0
    for position in starts:
        if expected is not None and position != expected:
            damaged.append((expected, f"missing, or the segment before overlaps the one at {position}"))
        try:
            header, length = segment.read_header(partition.file(position))
        except DamageError as error:
            damaged.append((position, str(error)))
            size += partition.file(position).stat().st_size
            expected = None
            continue
        size += length
        records += header.count
        expected = position + header.count
        try:
            segment.check_size(header, length)
            if verify:
                partition.load(position)
        except DamageError as error:
            damaged.append((position, str(error)))
        except LogCorruptionError as error:
            damaged.append((position, error.cause))
    begin = starts[0] if starts else 0
    end = expected if expected is not None else starts[-1]
    return PartitionStat(partition.number, begin, end, records, len(starts), size, damaged)
