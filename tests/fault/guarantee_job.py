"""The job that kills itself: within a batch, before it becomes visible, and after that.

Each of the deaths happens once, in a batch of its own; ``DEATHS`` says which of them, all unless it is given.
The batches are all of one size, so that it is known which records are in them.

As a program it runs the job without Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.driver.job_start import start_job
from penstock.testing.local_engine import LocalRuntime

SIZE = 10
BATCHES = 8
WITHIN, BEFORE, AFTER = 1, 3, 5
"""In which batch the job dies in its code, before the sinks have anything, after they have all."""

HOME = Path(os.environ.get("PENSTOCK_HOME", "."))
DEATHS = {int(batch) for batch in os.environ.get("DEATHS", f"{WITHIN} {BEFORE} {AFTER}").split()}


def die(batch: int) -> None:
    """Kill the job's processes, unless it is not to die of this, or has died of it before."""
    if batch not in DEATHS:
        return
    try:
        (HOME / f"died-{batch}").touch(exist_ok=False)
    except FileExistsError:
        return
    # Spark's Python workers have a group of their own; the session's leader is the job's process.
    os.killpg(os.getsid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def note(file: str, text: str) -> None:
    """Add a line to a file, which a process that is killed afterwards cannot take back."""
    with (HOME / file).open("a") as lines:
        lines.write(f"{text}\n")


def look(record: ps.Record) -> ps.Record:
    """Pass a record on, and leave a trace of that; die at a certain one."""
    note("seen", record.value)
    if record.value == WITHIN * SIZE + SIZE // 2:
        die(WITHIN)
    return record


class Running(ps.StatefulTask):
    """Numbers the records, so that the output tells what the state knew."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


class Writer(ps.SinkWriter):
    """Hands its records to the driver."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, records: list[ps.Record]) -> None:
        self.records.extend(record.value for record in records)

    def finish(self) -> list[Any] | None:
        return self.records or None


class Lines(ps.Sink):
    """Adds values to a file: a sink that is not transactional, like a terminal or a service."""

    def writer(self, context: ps.WriteContext) -> ps.SinkWriter:
        return Writer()

    def commit(self, batch: int, receipts: Sequence[list[Any]]) -> None:
        for values in receipts:
            for _, number in values:
                note("lines", number)


class Deadly(Lines):
    """Kills the job when a certain batch is to become visible."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def commit(self, batch: int, receipts: Sequence[list[Any]]) -> None:
        if batch == self.batch:
            die(batch)


job = ps.Job("deadly", guarantee=os.environ.get("GUARANTEE", "exactly-once"), parallelism=1)
source = job.source("source", ps.LogSource("input", max_records_per_batch=SIZE))
keyed = source >> job.task("look", look) >> job.task("running", Running())
# Batches become visible in the order of the sinks.
for name, sink in (
    ("first", Deadly(BEFORE)),
    ("log", ps.LogSink("output")),
    ("lines", Lines()),
    ("last", Deadly(AFTER)),
):
    keyed >> job.sink(name, sink)

if __name__ == "__main__":
    with start_job(job, LocalRuntime) as running:
        running.wait()
