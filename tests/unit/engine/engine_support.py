"""A job run by the engine's own halves, batch by batch, without Spark: what Spark would do with the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from penstock.connect.memory import MemorySink, MemorySource
from penstock.engine.blueprint import draw
from penstock.engine.flow import Program
from penstock.engine.packing import unpack
from penstock.engine.stages import PARCEL, DirectPart, run_direct, run_keyed
from penstock.engine.summary import StateHead, TaskSummary
from penstock.graph.job import Job
from penstock.record import Record, as_record


class LocalRun:
    """Runs batches of a job with one source in this process."""

    def __init__(self, job: Job, folder: Path, buckets: int = 2) -> None:
        self.sinks = {name: MemorySink() for name in job.sinks}
        self.discarded = MemorySink()
        ends: dict[str, Any] = {name: MemorySource() for name in job.sources}
        drawn = draw(job, folder=folder, buckets=buckets, discarded=self.discarded)
        self.blueprint = drawn.with_ends({**ends, **self.sinks})
        self.blueprint.folders.create()
        self.program = Program(self.blueprint)
        self.batch = 0
        self.heads: dict[int, StateHead] = {}
        self.feedback: list[str] = []
        self.summaries: list[TaskSummary] = []

    def step(self, items: list[Any] = (), source: str | None = None) -> TaskSummary:  # type: ignore[assignment]
        """Run one batch."""
        name = source or next(iter(self.blueprint.sources))
        work: list[dict[str, Any]] = [{"feedback": file} for file in self.feedback]
        work.append({"source": name, "split": [as_record(item) for item in items]})
        rows = []
        for number, part in enumerate(work):
            heads = self.heads if number == 0 else None
            rows += list(run_direct(self.program, DirectPart(self.batch, number, {}, heads=heads, **part)))
        if self.blueprint.plan.needs_exchange:
            tasks: dict[int, list[Any]] = {}
            for row in rows:
                tasks.setdefault(row[0], []).append(row)
            rows = [row for its_rows in tasks.values() for row in run_keyed(self.program, its_rows)]
        summary = TaskSummary(self.batch)
        for _, kind, data in rows:
            assert kind != PARCEL
            summary.absorb(unpack(data)[0])
        if summary.failure is not None:
            raise summary.failure
        for sink, receipts in summary.receipts.items():
            (self.blueprint.sinks[sink]).commit(self.batch, receipts)
        self.heads.update(summary.state)
        self.feedback = summary.feedback
        self.batch += 1
        self.summaries.append(summary)
        return summary

    def drain(self, items: list[Any]) -> LocalRun:
        """Run a batch and all that follow from it."""
        self.step(items)
        while self.feedback:
            self.step()
        return self

    def out(self, sink: str) -> Counter[tuple[Any, Any]]:
        """Return what a sink has, as a multiset."""
        return Counter((record.key, record.value) for record in self.sinks[sink].records)


def records(*pairs: tuple[Any, Any]) -> Counter[tuple[Any, Any]]:
    """Return pairs as a multiset."""
    return Counter(pairs)


__all__ = ["LocalRun", "Record", "records"]
