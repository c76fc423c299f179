"""What a run has done, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.engine.side import SideEntry
from penstock.engine.summary import SAMPLE, TaskSummary
from penstock.graph.vertex import DISCARDED, ERRORS, LATE


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
