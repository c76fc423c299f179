"""A job run by the engine's own halves, batch by batch, without Spark: what Spark would do with the rows."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.connect.memory import MemorySink, MemorySource
from penstock.engine.agreement.member import Member
from penstock.engine.blueprint import draw
from penstock.engine.clock import Clock, Times, advance, due, expect
from penstock.engine.flow import Program
from penstock.engine.ledger import Entry
from penstock.engine.packing import unpack
from penstock.engine.stages import PARCEL, DirectPart, run_direct, run_keyed
from penstock.engine.summary import StateHead, TaskSummary
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.record import Record, as_record


class LocalRun:
    """Runs batches of a job with one source in this process."""

    def __init__(self, job: Job, folder: Path, buckets: int = 2, member: Member | None = None) -> None:
        self.sinks = {name: MemorySink() for name in job.sinks}
        self.sides = {stream: MemorySink() for stream in SIDE_STREAMS}
        self.discarded = self.sides["discarded"]
        ends: dict[str, Any] = {name: MemorySource() for name in job.sources}
        drawn = draw(job, folder=folder, buckets=buckets, sides=self.sides)
        self.blueprint = replace(drawn.with_ends({**ends, **self.sinks}), member=member)
        self.blueprint.folders.create()
        self.program = Program(self.blueprint)
        self.batch = 0
        self.heads: dict[int, StateHead] = {}
        self.feedback: list[str] = []
        self.summaries: list[TaskSummary] = []
        self.times = Times()
        self.times_entry: dict[str, Any] = {}
        self.shuffler: random.Random | None = None
        """Brings the rows between the halves into another order, as Spark does."""

    def go_on(self, last: Entry) -> None:
        """Go on after a batch that is in the ledger."""
        self.batch, self.heads, self.feedback = last.batch + 1, dict(last.state), list(last.feedback)
        self.times = Times.of(last.times)

    def step(self, items: list[Any] = (), source: str | None = None) -> TaskSummary:  # type: ignore[assignment]
        """Run one batch of one lane of one source."""
        return self.run({(source or next(iter(self.blueprint.sources)), "0"): list(items)})

    def run(
        self,
        lanes: dict[tuple[str, str], list[Any]],
        *,
        now: float = 0.0,
        flush: bool = False,
        expected: dict[str, list[str]] | None = None,
    ) -> TaskSummary:
        """Run one batch: the items of each lane by source and lane."""
        work: list[dict[str, Any]] = [{"feedback": file} for file in self.feedback]
        work += [
            {"source": name, "lane": f"{name}:{lane}", "split": (0, [as_record(item) for item in items])}
            for (name, lane), items in lanes.items()
        ]
        clock = Clock(now, flush, expect(self.blueprint, self.times, expected or {}, now))
        rows = []
        for number, part in enumerate(work or [{}]):
            heads = self.heads if number == 0 else None
            direct = DirectPart(self.batch, number, {}, heads=heads, clock=clock, **part)
            rows += list(run_direct(self.program, direct))
        if self.shuffler is not None:
            self.shuffler.shuffle(rows)
        if self.blueprint.plan.needs_exchange:
            tasks: dict[int, list[Any]] = {}
            for row in rows:
                tasks.setdefault(row[0], []).append(row)
            rows = [row for _, its_rows in sorted(tasks.items()) for row in run_keyed(self.program, its_rows)]
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
        self.times_entry = advance(self.blueprint, summary)
        self.times = Times.of(self.times_entry)
        self.batch += 1
        self.summaries.append(summary)
        return summary

    def drain(self, items: list[Any]) -> LocalRun:
        """Run a batch and all that follow from it."""
        self.step(items)
        while self.feedback:
            self.step()
        return self

    def end(self) -> LocalRun:
        """Run what follows from the end of all sources: open windows are closed."""
        while self.feedback or due(self.blueprint, self.times, self.times.now, at_end=True):
            self.run({}, now=self.times.now, flush=True)
        return self

    def out(self, sink: str) -> Counter[tuple[Any, Any]]:
        """Return what a sink has, as a multiset."""
        return Counter((record.key, record.value) for record in self.sinks[sink].records)


def records(*pairs: tuple[Any, Any]) -> Counter[tuple[Any, Any]]:
    """Return pairs as a multiset."""
    return Counter(pairs)


__all__ = ["LocalRun", "Record", "records"]
