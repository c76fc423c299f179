"""What a Spark task tells the driver about its part of a batch, beside the records themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.engine.digest import add_digests
from penstock.engine.side import SideEntry

SAMPLE = 1000
"""How many entries of a side stream a report carries; the stream itself has them all."""


@dataclass
class StateHead:
    """The newest file of a bucket's state, and what is known of the files before it."""

    file: str
    base_batch: int
    base_bytes: int
    delta_bytes: int
    depth: int


@dataclass(frozen=True)
class ReportedPart:
    """Which part of a batch a task has run, before the shuffle."""

    number: int
    planned: int
    """How many parts the batch has."""
    empty: bool = False
    """Whether it is the only part of a batch for which there is nothing to do."""


@dataclass
class TaskSummary:
    """What one task says of a batch, or all of them together."""

    batch: int
    part: ReportedPart | None = None
    """The part that it speaks for; None behind the shuffle and behind vertices of Spark's own."""
    buckets: tuple[int, ...] = ()
    """The buckets that a task behind the shuffle has run."""
    rows_sent: dict[int, int] = field(default_factory=dict)
    """By bucket, how many rows a task has sent through the shuffle."""
    rows_received: dict[int, int] = field(default_factory=dict)
    """By bucket, how many rows a task has got out of the shuffle."""
    end: dict[str, Any] = field(default_factory=dict)
    records_in: dict[int, int] = field(default_factory=dict)
    records_out: dict[int, int] = field(default_factory=dict)
    side: dict[str, dict[str, int]] = field(default_factory=dict)
    """By side stream and vertex, how many records went there."""
    side_sample: dict[str, list[SideEntry]] = field(default_factory=dict)
    clock: Any = None
    """What the batch knew of time before it read anything; from one task only."""
    highs: dict[int, dict[str, float]] = field(default_factory=dict)
    """By vertex and lane, the newest event time that has come."""
    pending: dict[int, dict[str, float]] = field(default_factory=dict)
    """By bucket and vertex, the end of the earliest window that is open."""
    marks: dict[int, float] = field(default_factory=dict)
    """By vertex, the watermark that this batch has closed windows by."""
    receipts: dict[str, list[Any]] = field(default_factory=dict)
    state: dict[int, StateHead] = field(default_factory=dict)
    feedback: list[str] = field(default_factory=list)
    digests: dict[str, int] = field(default_factory=dict)
    """By sink, of the records that were handed to it; only where there are replicas to compare with."""
    state_digests: dict[str, int] = field(default_factory=dict)
    """By vertex, of the states that the batch has changed; likewise."""
    failure: Exception | None = None

    @property
    def empty(self) -> bool:
        """Whether there was nothing to do: the batch was in the ledger already, or it reads nothing."""
        return self.part is not None and self.part.empty

    def note(self, stream: str, entry: SideEntry) -> None:
        """Count a record that went into a side stream."""
        counts = self.side.setdefault(stream, {})
        counts[entry.vertex] = counts.get(entry.vertex, 0) + 1
        sample = self.side_sample.setdefault(stream, [])
        if len(sample) < SAMPLE:
            sample.append(entry)

    def absorb(self, other: TaskSummary) -> None:
        """Add what another task of the same batch has to tell."""
        self.part = self.part or other.part
        self.end = self.end or other.end
        self.clock = self.clock or other.clock
        for mine, theirs in (
            (self.records_in, other.records_in),
            (self.records_out, other.records_out),
        ):
            _add(mine, theirs)
        for stream, counts in other.side.items():
            _add(self.side.setdefault(stream, {}), counts)
        for stream, sample in other.side_sample.items():
            self.side_sample[stream] = (self.side_sample.get(stream, []) + sample)[:SAMPLE]
        for vertex, highs in other.highs.items():
            mine_highs = self.highs.setdefault(vertex, {})
            for lane, high in highs.items():
                mine_highs[lane] = max(high, mine_highs.get(lane, high))
        self.pending.update(other.pending)
        self.marks.update(other.marks)
        for sink, receipts in other.receipts.items():
            self.receipts.setdefault(sink, []).extend(receipts)
        self.state.update(other.state)
        self.feedback.extend(other.feedback)
        add_digests(self.digests, other.digests)
        add_digests(self.state_digests, other.state_digests)
        self.failure = self.failure or other.failure


def _add(mine: dict[Any, int], theirs: dict[Any, int]) -> None:
    for name, count in theirs.items():
        mine[name] = mine.get(name, 0) + count
