"""Runs a job over lists. The Spark session is started once and kept, so only the first test waits for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.connect.memory import MemorySink, MemorySource
from penstock.engine.blueprint import draw
from penstock.engine.report import Report
from penstock.engine.summary import Discarded
from penstock.errors import SettingError
from penstock.graph.ends import Sink, Source
from penstock.graph.job import Job
from penstock.record import Record


class Result(Mapping[str, "list[Record]"]):
    """What came out of each sink, in order, and what did not."""

    def __init__(self, sinks: dict[str, list[Record]], discarded: list[Discarded], report: Report) -> None:
        self._sinks = sinks
        self.discarded = discarded
        self.late: list[Record] = []
        self.errors: list[Record] = []
        self.report = report

    def __getitem__(self, sink: str) -> list[Record]:
        return self._sinks[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sinks)

    def __len__(self) -> int:
        return len(self._sinks)

    def __repr__(self) -> str:
        counts = ", ".join(f"{sink!r}: {len(records)} records" for sink, records in self._sinks.items())
        return f"<Result {{{counts}}}, {len(self.discarded)} discarded>"


def run(
    job: Job,
    feed: Mapping[str, Iterable[Any]] | None = None,
    *,
    partitions: int = 1,
    batch: int | None = None,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> Result:
    """Run a job over a feed until it is drained.

    The feed gives each source, by name, its items: values, ``(key, value)`` pairs or records. All of them
    make one batch, unless ``batch`` says how many records one takes at the most; ``partitions`` says
    how many tasks read them.
    """
    job.validate()
    feed = dict(feed or {})
    unknown = sorted(set(feed) - set(job.sources))
    if unknown:
        known = ", ".join(repr(name) for name in job.sources)
        raise SettingError(f"job {job.name!r} has no source {unknown[0]!r}: its sources are {known}")
    ends: dict[str, Source | Sink] = {
        name: MemorySource(feed.get(name, ()), partitions=partitions, max_records_per_batch=batch)
        for name in job.sources
    }
    sinks = {name: MemorySink() for name in job.sinks}
    discarded = MemorySink()

    from penstock.spark.run import follow

    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        blueprint = draw(job, folder=Path(folder) / job.name, buckets=1, discarded=discarded)
        report = follow(
            job,
            blueprint.with_ends({**ends, **sinks}),
            "drained",
            master=master or "local[2]",
            conf=conf,
        )
    entries = [Discarded.from_record(record) for record in discarded.records]
    return Result({name: sink.records for name, sink in sinks.items()}, entries, report)
