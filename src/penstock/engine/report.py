"""What a run has done, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.engine.summary import SAMPLE, Discarded, TaskSummary


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
    discarded_by_vertex: dict[str, int] = field(default_factory=dict)
    discarded_sample: list[Discarded] = field(default_factory=list)
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
        for vertex, count in summary.discarded.items():
            self.discarded += count
            self.discarded_by_vertex[vertex] = self.discarded_by_vertex.get(vertex, 0) + count
        self.discarded_sample = (self.discarded_sample + summary.discarded_sample)[:SAMPLE]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the sample of discarded records."""
        fields = asdict(self)
        del fields["discarded_sample"]
        return fields
