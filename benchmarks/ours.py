"""The Penstock halves. Each runs a job over a folder of Arrow files and returns what it measured.

What is the same for all of them: the records of the folder are put into a log, one segment for each file,
before the clock starts; the job reads that log in the same micro-batches as the competitors read the
files. A run that is measured writes its results to another log, exactly once, where the hand-written
jobs drop theirs; a run that is checked keeps them in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from benchmarks import events
from benchmarks.arrow_files import PARTITIONS, last_counts, outcome_of, read_pairs
from benchmarks.hand.query import batches_of
from benchmarks.hand.session import MASTER
from benchmarks.timing import Batch, Measured, Outcome
from penstock.connect.log_connectors import LogSource

CONF = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
Digest = Callable[[Iterable[tuple[Any, ...]]], Outcome]


class Queries:
    """Remembers the query of a run while it runs: afterwards it is gone."""

    def __init__(self) -> None:
        self._found: list[Any] = []

    def __call__(self, _: ps.Report) -> None:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if not self._found and session is not None:
            self._found.extend(session.streams.active)

    @property
    def first(self) -> Any:
        """The query."""
        return self._found[0]


class BatchedLog(LogSource):
    """Reads a log in the micro-batches in which it was written, however large each of them is."""

    def __init__(self, root: Path, ends: Sequence[dict[str, int]]) -> None:
        super().__init__("input", root=root)
        self.ends = ends
        """The position at the end of each micro-batch."""

    def latest(self, after: dict[str, int]) -> dict[str, int]:
        """Return the end of the next micro-batch."""
        return next((end for end in self.ends if end["0"] > after["0"]), after)


class DropSink(ps.Sink):
    """Throws records away."""

    def writer(self, context: ps.WriteContext) -> ps.SinkWriter:  # noqa: ARG002
        """Return a writer that keeps nothing."""
        return DropWriter()

    def commit(self, batch: int, receipts: Sequence[Any]) -> None:
        """Do nothing."""


class DropWriter(ps.SinkWriter):
    """Keeps nothing."""

    def write(self, records: list[ps.Record]) -> None:
        """Drop records."""

    def finish(self) -> None:
        """Have nothing to say."""


def per_record(
    folder: str, steps: int, check: bool, store: bool = True, parallelism: int | None = None
) -> Measured:
    """Run one task on each record, or five in a row; store the results or drop them."""
    tasks = [keep_large_in_capitals] if steps == 1 else [parse, keep_large, normalise, convert, render]
    return _run(folder, tasks, check, outcome_of, store, parallelism=parallelism)


def keyed_count(
    folder: str,
    check: bool,
    guarantee: str = "exactly-once",
    durability: str = "none",
    combined: bool = True,
) -> Measured:
    """Count records by key, combined before the shuffle or by a task that gets every value."""
    task = ps.Count() if combined else Tally()
    return _run(folder, [task], check, last_counts, guarantee=guarantee, durability=durability)


class Tally(ps.StatefulTask):
    """Counts like ``ps.Count``, but as a user writes it: each value comes through the shuffle."""

    def update(self, key: Any, values: list[Any], state: int | None) -> tuple[int, list[Any]]:
        """Add the values of a batch."""
        count = (state or 0) + len(values)
        return count, [(key, count)]


def small_batch(folder: str, keyed: bool, check: bool) -> Measured:
    """Run small batches back to back, through one task or through a count by key."""
    return keyed_count(folder, check) if keyed else per_record(folder, 1, check)


def keep_large_in_capitals(record: ps.Record) -> str | None:
    """The one step of the short job."""
    return events.one_step(record.value)


def parse(record: ps.Record) -> events.Event:
    """Step 1 of 5."""
    return events.parse(record.value)


def keep_large(record: ps.Record) -> ps.Record | None:
    """Step 2 of 5."""
    return record if events.is_large(record.value) else None


def normalise(record: ps.Record) -> events.Event:
    """Step 3 of 5."""
    return events.normalise(record.value)


def convert(record: ps.Record) -> events.Event:
    """Step 4 of 5."""
    return events.convert(record.value)


def render(record: ps.Record) -> str:
    """Step 5 of 5."""
    return events.render(record.value)


def _run(
    folder: str,
    tasks: Sequence[Any],
    check: bool,
    digest: Digest,
    store: bool = True,
    guarantee: str = "exactly-once",
    durability: str = "none",
    parallelism: int | None = None,
) -> Measured:
    root = Path(folder) / "logs"
    ends = _fill_log(Path(folder), root)
    queries = Queries()
    with tempfile.TemporaryDirectory(prefix="benchmark-job-") as place:
        stored = ps.LogSink("output", root=place) if store else DropSink()
        sink = ps.MemorySink() if check else stored
        job = ps.Job("benchmark", guarantee=guarantee, durability=durability)
        vertex = job.source("input", BatchedLog(root, ends))
        for number, task in enumerate(tasks):
            vertex = vertex >> job.task(f"task{number}", task, parallelism=parallelism)
        vertex >> job.sink("output", sink)
        ps.run(job, until="drained", master=MASTER, conf=CONF, folder=place, on_progress=queries)
    outcome = None
    if isinstance(sink, ps.MemorySink):
        outcome = digest((record.key, record.value) for record in sink.records)
    return Measured(_with_records(batches_of(queries.first), ends), outcome)


def _with_records(batches: tuple[Batch, ...], ends: Sequence[dict[str, int]]) -> tuple[Batch, ...]:
    """Put the number of records into batches for which Spark has counted parcels of records."""
    totals = [sum(end.values()) for end in ends]
    if len(batches) != len(totals):
        raise ValueError(f"{len(batches)} batches ran where {len(totals)} were written")
    sizes = [total - before for total, before in zip(totals, [0, *totals], strict=False)]
    return tuple(Batch(b.start, b.end, size) for b, size in zip(batches, sizes, strict=True))


def _fill_log(folder: Path, root: Path) -> list[dict[str, int]]:
    """Write a folder's records into a log, unless they are there; return where each micro-batch ends."""
    from penstock.log import log_folder

    path = log_folder("input", str(root))
    filled = path.exists()
    log = ps.Log.open(path) if filled else ps.Log.create(path, partitions=PARTITIONS)
    end = {str(partition): 0 for partition in range(PARTITIONS)}
    ends = []
    for number, pairs in enumerate(read_pairs(folder)):
        partition = number % PARTITIONS
        if not filled:
            log.append([ps.Record(key, value) for key, value in pairs], partition)
        end = {**end, str(partition): end[str(partition)] + len(pairs)}
        if partition == PARTITIONS - 1:
            ends.append(end)
    return ends
