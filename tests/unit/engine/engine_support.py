"""A job run batch by batch in the thread of the test: the engine itself plans, computes and commits."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import make_blueprint
from penstock.engine.driver import batch_planner
from penstock.engine.driver.batch_committer import BatchCommitter
from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.execution.batch_stages import Row
from penstock.engine.execution.record_flow import Program
from penstock.engine.slot_table import SlotTable
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.state_chain import StateHead
from penstock.engine.windows.watermarks import TimeProgress
from penstock.graph.connector_api import Position, Split
from penstock.graph.job import Job
from penstock.graph.vertex import SIDE_STREAMS
from penstock.record import Record, as_record
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, ReplicaSpec
from penstock.testing.local_engine import run_parts


class LaneSource(MemorySource):
    """Gives the next batch what the test has put into its lanes, all of it."""

    bounded = False

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, list[Record]] = {}
        self.expected: Sequence[str] = ()
        """Lanes of which it is known that they have something, beside those that have sent it."""

    def begin(self) -> Position:
        """Start before the first item of each lane."""
        return {}

    def latest(self, after: Position) -> Position:
        """Read all that waits."""
        return after | {
            lane: after.get(lane, 0) + len(waiting) for lane, waiting in self.waiting.items() if waiting
        }

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Return what waits, lane by lane."""
        return [(lane, waiting) for lane, waiting in self.waiting.items() if waiting]

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the lanes that have sent something, and those that are expected to."""
        return sorted({*end, *self.expected})

    def unread(self, end: Position) -> Sequence[str]:
        """Return nothing: a batch reads all."""
        return ()


class _Clock:
    """The time that a batch is planned at."""

    def __init__(self, now: float) -> None:
        self._now = now
        self.monotonic = time.monotonic

    def time(self) -> float:
        return self._now


class LocalRun:
    """Runs batches of a job, with the lanes of its sources and the time as the test gives them.

    It goes on after the last batch that the ledger of its folder has. One of several replicas agrees with
    itself alone.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        buckets: int = 2,
        replica_spec: ReplicaSpec | None = None,
        sources: Mapping[str, Any] | None = None,
        slots: int | None = None,
    ) -> None:
        self.sinks = {name: MemorySink() for name in job.sinks}
        self.sides = {stream: MemorySink() for stream in SIDE_STREAMS}
        self.discarded = self.sides["discarded"]
        self.sources = {name: LaneSource() for name in job.sources} | dict(sources or {})
        drawn = make_blueprint(job, folder=folder, buckets=buckets, sides=self.sides, slots=slots)
        if replica_spec is not None:
            replica_spec = replace(replica_spec, agreement=str(folder / "agreement"))
        self.blueprint = replace(drawn.with_ends({**self.sources, **self.sinks}), replica_spec=replica_spec)
        self.blueprint.folders.create()
        self.program = Program(self.blueprint)
        self.summaries: list[TaskSummary] = []
        self.shuffler: random.Random | None = None
        """Brings the rows between the halves into another order, as Spark does."""
        self._planner = BatchPlanner(self.blueprint)
        self._committer = BatchCommitter(self.blueprint)
        self._ledger = Ledger(self.blueprint.folders.ledger)
        self._committer.begin(self._ledger.latest())

    @property
    def last(self) -> LedgerEntry | None:
        """The last batch that has happened."""
        return self._committer.last

    @property
    def batch(self) -> int:
        """The batch that is next."""
        return self.last.batch + 1 if self.last else 0

    @property
    def heads(self) -> dict[int, StateHead]:
        """Where the state is."""
        return self.last.state if self.last else {}

    @property
    def feedback(self) -> list[str]:
        """The files with what is on its way into the next batch."""
        return self.last.feedback if self.last else []

    @property
    def times_entry(self) -> dict[str, Any]:
        """How far time has come, as the ledger keeps it."""
        return self.last.times if self.last else {}

    @property
    def times(self) -> TimeProgress:
        """How far time has come."""
        return TimeProgress.of(self.times_entry)

    def assign(self, table: Sequence[int]) -> None:
        """Give each bucket a slot, from the next batch on."""
        SlotTable(self.blueprint.slots, tuple(table)).write(self.blueprint.folders.slots)

    def go_on(self, last: LedgerEntry) -> None:
        """Go on after a batch that another run has done."""
        self._ledger.commit(last)
        self._committer.begin(last)

    def step(self, items: list[Any] = (), source: str | None = None) -> TaskSummary:  # type: ignore[assignment]
        """Run one batch of one lane of one source."""
        return self.run({(source or next(iter(self.sources)), "0"): list(items)})

    def run(
        self,
        lanes: Mapping[tuple[str, str], list[Any]],
        *,
        now: float = 0.0,
        expected: Mapping[str, list[str]] | None = None,
    ) -> TaskSummary:
        """Run one batch with the items of each lane by source and lane, if there is anything to do for it."""
        for name, source in self.sources.items():
            source.waiting = {
                lane: [as_record(item) for item in items] for (of, lane), items in lanes.items() if of == name
            }
            source.expected = (expected or {}).get(name, ())
        return self._run_batch(now) or TaskSummary(self.batch)

    def _run_batch(self, now: float) -> TaskSummary | None:
        """Run the batch that is next, and return what was done; None if there was nothing to do."""
        self._found()
        start = self._planner.begin()
        with patch.object(batch_planner, "time", _Clock(now)):
            end = self._planner.latest(start)
        if end == start:
            return None
        parts = self._planner.parts(start, end)
        done: list[TaskSummary] = []

        def attempt() -> TaskSummary:
            done.append(run_parts(self.program, parts, self._arrange))
            return done[-1]

        self._committer.run_batch(attempt)
        for source in self.sources.values():
            source.waiting = {}
        self.summaries += done
        return done[-1]

    def _found(self) -> None:
        if self.blueprint.replica_spec is not None:
            agreement = AgreementFolder(self.blueprint.replica_spec.folder)
            if agreement.shared() is None:
                agreement.create(Charter(self.batch, {}))

    def _arrange(self, rows: list[Row]) -> None:
        if self.shuffler is not None:
            self.shuffler.shuffle(rows)

    def drain(self, items: list[Any]) -> LocalRun:
        """Run a batch and all that follow from it."""
        self.step(items)
        while self.feedback:
            self.step()
        return self

    def end(self) -> LocalRun:
        """Run what follows from the end of all sources: open windows are closed."""
        for source in self.sources.values():
            source.bounded = True
        while self._run_batch(self.times.now) is not None:
            pass
        return self

    def out(self, sink: str) -> Counter[tuple[Any, Any]]:
        """Return what a sink has, as a multiset."""
        return Counter((record.key, record.value) for record in self.sinks[sink].records)


def records(*pairs: tuple[Any, Any]) -> Counter[tuple[Any, Any]]:
    """Return pairs as a multiset."""
    return Counter(pairs)


__all__ = ["LaneSource", "LocalRun", "Record", "records"]
