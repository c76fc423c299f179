"""What a Spark task tells the driver about its part of a batch, beside the records themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.record import Record

SAMPLE = 1000
"""How many discarded records a report carries; the stream of them has them all."""


@dataclass(frozen=True)
class Discarded:
    """A record that did not enter a loop again, and why."""

    job: str
    vertex: str
    """The entry of the loop, which the record did not reach."""
    cycle: tuple[str, ...]
    count: int
    """How often the record would have come back with this time: more than ``limit``."""
    limit: int
    record: Record

    def to_record(self) -> Record:
        """Return the entry as it stands in the stream of discarded records."""
        value = {
            "job": self.job,
            "vertex": self.vertex,
            "cycle": list(self.cycle),
            "count": self.count,
            "limit": self.limit,
            "value": self.record.value,
        }
        return Record(self.record.key, value, self.record.ts)

    @classmethod
    def from_record(cls, entry: Record) -> Discarded:
        """Read an entry back from the stream of discarded records."""
        fields = dict(entry.value)
        record = Record(entry.key, fields.pop("value"), entry.ts)
        return cls(**{**fields, "cycle": tuple(fields["cycle"])}, record=record)


@dataclass
class StateHead:
    """The newest file of a bucket's state, and what is known of the files before it."""

    file: str
    base_batch: int
    base_bytes: int
    delta_bytes: int
    depth: int


@dataclass
class TaskSummary:
    """One for each Spark task and batch."""

    batch: int
    end: dict[str, Any] = field(default_factory=dict)
    records_in: dict[int, int] = field(default_factory=dict)
    records_out: dict[int, int] = field(default_factory=dict)
    discarded: dict[str, int] = field(default_factory=dict)
    discarded_sample: list[Discarded] = field(default_factory=list)
    receipts: dict[str, list[Any]] = field(default_factory=dict)
    state: dict[int, StateHead] = field(default_factory=dict)
    feedback: list[str] = field(default_factory=list)
    failure: Exception | None = None

    def absorb(self, other: TaskSummary) -> None:
        """Add what another task of the same batch has to tell."""
        self.end = self.end or other.end
        for mine, theirs in (
            (self.records_in, other.records_in),
            (self.records_out, other.records_out),
            (self.discarded, other.discarded),
        ):
            _add(mine, theirs)
        self.discarded_sample = (self.discarded_sample + other.discarded_sample)[:SAMPLE]
        for sink, receipts in other.receipts.items():
            self.receipts.setdefault(sink, []).extend(receipts)
        self.state.update(other.state)
        self.feedback.extend(other.feedback)
        self.failure = self.failure or other.failure


def _add(mine: dict[Any, int], theirs: dict[Any, int]) -> None:
    for name, count in theirs.items():
        mine[name] = mine.get(name, 0) + count
