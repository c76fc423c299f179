"""The reports of tasks to the driver, and the totals of a run.

A ``TaskSummary`` holds counts, receipts, state heads and times; the summaries of a batch are merged into
one. A ``Report`` counts what was committed. Neither depends on how a batch is run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.engine.record_digest import add_digests
from penstock.engine.side_streams import SideEntry
from penstock.engine.storage.state_chain import StateHead
from penstock.graph.vertex import DISCARDED, ERRORS, LATE

SAMPLE = 1000
"""How many entries of each side stream a report contains; the stream itself has all of them."""


@dataclass(frozen=True)
class ReportedPart:
    """The part of a batch that a task before the shuffle has run."""

    number: int
    planned: int
    """How many parts the batch has."""
    empty: bool = False
    """Whether the batch has nothing to do, so that this is its only part."""


@dataclass
class TaskSummary:
    """The result of one task of a batch, or the merged results of all its tasks."""

    batch: int
    part: ReportedPart | None = None
    """The part that was run; None after the shuffle and after vertices in Spark."""
    buckets: tuple[int, ...] = ()
    """The buckets that a task after the shuffle has run."""
    rows_sent: dict[int, int] = field(default_factory=dict)
    """The number of rows sent through the shuffle, by slot."""
    rows_received: dict[int, int] = field(default_factory=dict)
    """The number of rows received from the shuffle, by slot."""
    end: dict[str, Any] = field(default_factory=dict)
    records_in: dict[int, int] = field(default_factory=dict)
    records_out: dict[int, int] = field(default_factory=dict)
    side: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of records by side stream and vertex."""
    side_sample: dict[str, list[SideEntry]] = field(default_factory=dict)
    clock: Any = None
    """The event time at the start of the batch; given by one task only."""
    highs: dict[int, dict[str, float]] = field(default_factory=dict)
    """The high mark (newest event time) by vertex and lane."""
    pending: dict[int, dict[str, float]] = field(default_factory=dict)
    """The end of the earliest open window by bucket and vertex."""
    marks: dict[int, float] = field(default_factory=dict)
    """The watermark up to which this batch has closed windows, by vertex."""
    receipts: dict[str, list[Any]] = field(default_factory=dict)
    state: dict[int, StateHead] = field(default_factory=dict)
    feedback: list[str] = field(default_factory=list)
    digests: dict[str, int] = field(default_factory=dict)
    """Digests of the records written, by sink; only with replicas, which compare them."""
    state_digests: dict[str, int] = field(default_factory=dict)
    """Digests of the states that the batch has changed, by vertex; only with replicas."""
    failure: Exception | None = None

    @property
    def empty(self) -> bool:
        """Whether there was nothing to do: the batch was already in the ledger, or it reads nothing."""
        return self.part is not None and self.part.empty

    def note(self, stream: str, entry: SideEntry) -> None:
        """Count a record that went into a side stream."""
        counts = self.side.setdefault(stream, {})
        counts[entry.vertex] = counts.get(entry.vertex, 0) + 1
        sample = self.side_sample.setdefault(stream, [])
        if len(sample) < SAMPLE:
            sample.append(entry)

    def absorb(self, other: TaskSummary) -> None:
        """Merge the summary of another task of the same batch into this one."""
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
    """The numbers of records that a vertex has received and emitted."""

    records_in: int = 0
    records_out: int = 0


@dataclass
class Report:
    """The totals of a run so far."""

    job: str
    vertices: dict[str, VertexReport]
    batches: int = 0
    records_in: int = 0
    """Records read from the sources."""
    records_out: int = 0
    """Records written to the sinks."""
    discarded: int = 0
    """Records that reached the limit of a loop."""
    late: int = 0
    """Records that arrived after all their windows were closed."""
    errors: int = 0
    """Records left out because user code raised for them or they did not fit a schema."""
    discarded_by_vertex: dict[str, int] = field(default_factory=dict)
    late_by_vertex: dict[str, int] = field(default_factory=dict)
    errors_by_vertex: dict[str, int] = field(default_factory=dict)
    side_sample: dict[str, list[SideEntry]] = field(default_factory=dict)
    """The first entries of each side stream."""
    seconds: float = 0.0
    """Seconds since the start of the first batch."""
    batch_seconds: float = 0.0
    """Seconds that the last batch took."""
    busy_seconds: float = 0.0
    """Seconds that all batches took together."""
    lag: int | None = None
    """Unread records in the sources, if these can tell."""

    def add(self, names: list[str], kinds: list[str], summary: TaskSummary, seconds: float) -> None:
        """Add a committed batch."""
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
