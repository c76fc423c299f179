"""Which segments a log no longer keeps.

Decisions only; ``maintenance`` deletes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import SettingError


@dataclass(frozen=True)
class Retention:
    """What a log keeps. A segment is deleted as soon as one of the rules no longer keeps it."""

    bytes: int | None = None
    """The most that all partitions together hold; the oldest segments go first, read or not."""
    seconds: float | None = None
    """How long a segment is kept after it was written, read or not."""
    consumed: bool = False
    """Whether to delete what every reader has consumed. A log without readers then keeps everything."""

    def __post_init__(self) -> None:
        if self.bytes is not None and (type(self.bytes) is not int or self.bytes < 1):
            raise SettingError(f"retain_bytes is a number of bytes, 1 or more, not {self.bytes!r}")
        seconds = self.seconds
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < float("inf")):
            raise SettingError(f"retain_seconds is a number of seconds over 0, not {seconds!r}")
        if type(self.consumed) is not bool:
            raise SettingError(f"retain_consumed is True or False, not {self.consumed!r}")

    @property
    def deletes(self) -> bool:
        """Whether there is a rule at all."""
        return self.bytes is not None or self.seconds is not None or self.consumed


@dataclass(frozen=True)
class SegmentFacts:
    """What retention knows of a segment: the positions it spans, its size, when it was written."""

    start: int
    end: int
    bytes: int
    time: float


@dataclass(frozen=True)
class Cut:
    """Delete what lies before a position of a partition, and why."""

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
    """Where to cut each partition that has something to delete.

    ``partitions`` has the segments of each in order; the newest of a partition always stays, because it tells
    where the partition ends. ``consumed`` is how far every reader has come, without an entry where nobody
    knows.

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
