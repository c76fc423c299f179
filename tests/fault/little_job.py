"""A small job in a home of its own, as a worker of a cluster has it, run in this process without Spark.

It takes numbers from one log and writes each visit of a key to another one; every fifth number goes round a
loop once. So a home has positions, keyed state, records under way and segments, and what it must contain is
known from how far it has read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.engine.storage.ledger import Ledger
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime
from support.tallying import Route, Tally, rounds
from support.waiting import eventually

JOB = "little"
KEYS = 7
EVERY = 5


class HomeSink(ps.LogSink):
    """A log of the home, which a worker is told by its environment: it moves with the home."""

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "root": None}


class LittleJob:
    """The job in one home, which it has taken over."""

    def __init__(self, home: Path, revision: int = 1) -> None:
        self.folder = take_over(home / "cluster-jobs" / JOB, Claim(revision, 1))
        self._home = home
        self._before = -1

    def start(self) -> Handle:
        """Run it from where its ledger says."""
        job = ps.Job(JOB, parallelism=2, max_iterations=1)
        source = job.source("in", ps.LogSource("in", root=self._home, max_records_per_batch=50))
        tally, route = job.task("tally", Tally()), job.task("route", Route(EVERY))
        source >> job.task("by_key", lambda r: (r.value % KEYS, (r.value, 0))) >> tally >> route
        route["again"] >> tally
        route["out"] >> job.sink("out", HomeSink("out", root=self._home, partitions=2))
        self._before = self.batch
        return start_job(job, LocalRuntime, folder=self.folder, taken=True)

    def run(self) -> None:
        """Run it until it has processed all that there is."""
        with self.start() as handle:
            self.wait_done(handle)

    def wait_done(self, handle: Handle) -> None:
        """Wait until all that there is was processed, and what the last batch has to tidy up is tidied up."""

        def done() -> bool:
            last = self.batch
            return handle.drained() and handle.report.batches == last - self._before

        eventually("all is processed", done, meanwhile=handle.check)

    @property
    def batch(self) -> int:
        """The last batch that has happened; -1 if there was none."""
        last = Ledger(self.folder / "ledger").latest()
        return last.batch if last is not None else -1

    def check(self) -> None:
        """See that all input has come out, each visit once and with the number that its state gave it."""
        output = Log.open(log_folder("out", self._home))
        visits = [
            (record.key, *record.value)
            for place in range(output.partitions)
            for chunk in output.read(place, output.begin(place))
            for record in chunk
        ]
        # The input counts up from 0, so that a position is its number.
        numbers = range(Log.open(log_folder("in", self._home)).end(0))
        assert Counter(number for _, _, number in visits) == {n: 1 + rounds(n, EVERY) for n in numbers}
        for key in range(KEYS):
            counted = sorted(visit for one, visit, _ in visits if one == key)
            assert counted == list(range(1, len(counted) + 1))
