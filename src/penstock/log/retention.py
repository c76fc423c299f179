"""Decide which segments retention deletes; ``maintenance`` deletes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import SettingError


@dataclass(frozen=True)
class Retention:
    """The retention rules of a log. A segment is deleted as soon as any rule allows it."""

    bytes: int | None = None
    """Maximum size of all partitions together. The oldest segments are deleted first, read or not."""
    seconds: float | None = None
    """How long a segment is kept after it was written, read or not."""
    consumed: bool = False
    """Whether to delete segments that every reader has consumed. Nothing is deleted without readers."""

    def __post_init__(self) -> None:
        if self.bytes is not None and (type(self.bytes) is not int or self.bytes < 1):
            raise SettingError(f"retain_bytes must be a number of bytes, 1 or more, not {self.bytes!r}")
        seconds = self.seconds
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < float("inf")):
            raise SettingError(f"retain_seconds must be a number of seconds over 0, not {seconds!r}")
        if type(self.consumed) is not bool:
            raise SettingError(f"retain_consumed must be True or False, not {self.consumed!r}")

    @property
    def deletes(self) -> bool:
        """Whether any rule is set."""
        return self.bytes is not None or self.seconds is not None or self.consumed


@dataclass(frozen=True)
class SegmentFacts:
    """Positions, size and modification time of a segment."""

    start: int
    end: int
    bytes: int
    time: float


@dataclass(frozen=True)
class Cut:
    """Deletion of all segments before a position of a partition, and its reason."""

    partition: int
    position: int
    segments: int
    bytes: int
    reason: str


def decide(
    partitions: Mapping[int, Sequence[SegmentFacts]],
    retention: Retention,
    consumed: Mapping[int, int],
    now: float,
) -> list[Cut]:
    """Return a cut for each partition that has segments to delete.

    ``partitions`` holds the segments of each partition in order. The newest segment is always kept, because
    it marks the end of the partition. ``consumed`` holds the position that every reader has passed, without
    an entry for a partition where it is unknown.

    >>> facts = [SegmentFacts(0, 10, 500, 100.0), SegmentFacts(10, 20, 500, 200.0)]
    >>> decide({0: facts}, Retention(seconds=60), {}, now=250.0)
    [Cut(partition=0, position=10, segments=1, bytes=500, reason='older than 60 seconds')]
    """
    dropped = dict.fromkeys(sorted(partitions), 0)
    reasons: dict[int, list[str]] = {number: [] for number in dropped}
    for number in dropped:
        for facts in partitions[number][:-1]:
            if retention.consumed and facts.end <= consumed.get(number, -1):
                reason = "consumed by every reader"
            elif retention.seconds is not None and facts.time < now - retention.seconds:
                reason = f"older than {retention.seconds:g} seconds"
            else:
                break
            dropped[number] += 1
            _note(reasons[number], reason)
    if retention.bytes is not None:
        _shrink(partitions, retention.bytes, dropped, reasons)
    return [
        Cut(
            number,
            partitions[number][count - 1].end,
            count,
            sum(facts.bytes for facts in partitions[number][:count]),
            ", ".join(reasons[number]),
        )
        for number, count in dropped.items()
        if count
    ]


def _shrink(
    partitions: Mapping[int, Sequence[SegmentFacts]],
    limit: int,
    dropped: dict[int, int],
    reasons: dict[int, list[str]],
) -> None:
    size = sum(facts.bytes for number in dropped for facts in partitions[number][dropped[number] :])
    while size > limit:
        fronts = [
            (partitions[number][count].time, number)
            for number, count in dropped.items()
            if count < len(partitions[number]) - 1
        ]
        if not fronts:
            return
        _, oldest = min(fronts)
        size -= partitions[oldest][dropped[oldest]].bytes
        dropped[oldest] += 1
        _note(reasons[oldest], f"the log is larger than {limit} bytes")


def _note(reasons: list[str], reason: str) -> None:
    if reason not in reasons:
        reasons.append(reason)
