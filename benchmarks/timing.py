"""What one half of a benchmark measures, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

WARM_UP_BATCHES = 1
"""Batches at the start of a query that are left out: they plan the query and start Python workers."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch: its start and end in seconds since the epoch, and how many records it read."""

    start: float
    end: float
    records: int


@dataclass(frozen=True)
class Outcome:
    """What a job produced, in a form that does not depend on order."""

    rows: int
    digest: int


@dataclass(frozen=True)
class MemorySample:
    """The memory of a driver at one moment, in MiB: what its two processes hold, and the JVM's objects."""

    time: float
    python: float
    jvm: float
    heap: float


@dataclass(frozen=True)
class Measured:
    """What one run of one half tells the parent process."""

    batches: tuple[Batch, ...]
    outcome: Outcome | None = None
    """Present when the run was asked to check itself; such a run is not timed."""
    memory: tuple[MemorySample, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for :meth:`from_json`."""
        return {
            "batches": [[batch.start, batch.end, batch.records] for batch in self.batches],
            "outcome": None if self.outcome is None else [self.outcome.rows, self.outcome.digest],
            "memory": [[at.time, at.python, at.jvm, at.heap] for at in self.memory],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measured:
        """Read what :meth:`to_json` wrote."""
        outcome = data["outcome"]
        return cls(
            batches=tuple(Batch(*batch) for batch in data["batches"]),
            outcome=None if outcome is None else Outcome(*outcome),
            memory=tuple(MemorySample(*sample) for sample in data["memory"]),
        )


def throughput(measured: Measured, skip: int = WARM_UP_BATCHES) -> float:
    """Return records a second from the start of the first counted batch to the end of the last.

    >>> throughput(Measured((Batch(0, 9, 10), Batch(10, 11, 100), Batch(11, 12, 100))))
    100.0
    """
    counted = measured.batches[skip:]
    if not counted:
        raise ValueError(f"{len(measured.batches)} batches are too few to measure")
    return sum(batch.records for batch in counted) / (counted[-1].end - counted[0].start)


def median_batch_seconds(measured: Measured, skip: int) -> float:
    """Return the median time of the batches after the first ``skip``.

    >>> median_batch_seconds(Measured((Batch(0, 9, 1), Batch(9, 10, 1), Batch(10, 13, 1))), skip=1)
    2.0
    """
    counted = measured.batches[skip:]
    if not counted:
        raise ValueError(f"{len(measured.batches)} batches are too few to measure")
    return float(median(batch.end - batch.start for batch in counted))
