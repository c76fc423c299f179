"""The reports of tasks to the driver, and the totals of a run.

A ``TaskSummary`` holds counts, receipts, state heads and times; the summaries of a batch are merged into
one. A ``Report`` counts what was committed, for people and for programs. Neither knows how a batch is run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.engine.record_digest import add_digests
from penstock.engine.side_streams import SideEntry
from penstock.engine.storage.keyed_state import StateHead
from penstock.graph.vertex import DISCARDED, ERRORS, LATE

SAMPLE = 1000
"""How many entries of a side stream a report carries; the stream itself has them all."""


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


@dataclass
class VertexReport:
    """How many records a vertex has taken and given."""

    records_in: int = 0
    records_out: int = 0


@dataclass
class Report:
    """What a run has done so far."""

    job: str
    vertices: dict[str, VertexReport]
    batches: int = 0
    records_in: int = 0
    """Records read from the sources."""
    records_out: int = 0
    """Records written to the sinks."""
    discarded: int = 0
    """Records that did not enter a loop again because of its limit."""
    late: int = 0
    """Records that came when all their windows were closed."""
    errors: int = 0
    """Records that user code raised for, or that did not fit a schema, and that were left out."""
    discarded_by_vertex: dict[str, int] = field(default_factory=dict)
    late_by_vertex: dict[str, int] = field(default_factory=dict)
    errors_by_vertex: dict[str, int] = field(default_factory=dict)
    side_sample: dict[str, list[SideEntry]] = field(default_factory=dict)
    """By side stream, some of what went there."""
    seconds: float = 0.0
    """How long the run has taken, from the start of its first batch."""
    batch_seconds: float = 0.0
    """How long the last batch has taken."""
    busy_seconds: float = 0.0
    """How long all batches together have taken."""
    lag: int | None = None
    """Records that wait in the sources, where they can tell."""

    def add(self, names: list[str], kinds: list[str], summary: TaskSummary, seconds: float) -> None:
        """Count a committed batch."""
        self.batches += 1
        self.batch_seconds = seconds
        self.busy_seconds += seconds
        for index, count in summary.records_in.items():
            self.vertices[names[index]].records_in += count
            if kinds[index] == "sink":
                self.records_out += count
        for index, count in summary.records_out.items():
            self.vertices[names[index]].records_out += count
            if kinds[index] == "source":
                self.records_in += count
        for stream, by_vertex in (
            (DISCARDED, self.discarded_by_vertex),
            (LATE, self.late_by_vertex),
            (ERRORS, self.errors_by_vertex),
        ):
            for vertex, count in summary.side.get(stream, {}).items():
                by_vertex[vertex] = by_vertex.get(vertex, 0) + count
        self.discarded = sum(self.discarded_by_vertex.values())
        self.late = sum(self.late_by_vertex.values())
        self.errors = sum(self.errors_by_vertex.values())
        for stream, sample in summary.side_sample.items():
            self.side_sample[stream] = (self.side_sample.get(stream, []) + sample)[:SAMPLE]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the samples of side streams."""
        return asdict(replace(self, side_sample={}), dict_factory=_without_samples)


def _without_samples(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name != "side_sample"}
