"""Runs a job over lists. The Spark session is started once and kept, so only the first test waits for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.connect.memory import MemorySink, MemorySource
from penstock.engine.blueprint import draw
from penstock.engine.report import Report
from penstock.engine.side import Discarded, Failed, Late
from penstock.errors import SettingError
from penstock.graph.ends import Sink, Source
from penstock.graph.job import Job
from penstock.graph.vertex import DISCARDED, ERRORS, LATE, SIDE_STREAMS
from penstock.record import Record


class Result(Mapping[str, "list[Record]"]):
    """What came out of each sink, in order, and what did not."""

    def __init__(
        self,
        sinks: dict[str, list[Record]],
        discarded: list[Discarded],
        late: list[Late],
        errors: list[Failed],
        report: Report,
    ) -> None:
        self._sinks = sinks
        self.discarded = discarded
        self.late = late
        self.errors = errors
        self.report = report

    def __getitem__(self, sink: str) -> list[Record]:
        return self._sinks[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sinks)

    def __len__(self) -> int:
        return len(self._sinks)

    def __repr__(self) -> str:
        counts = ", ".join(f"{sink!r}: {len(records)} records" for sink, records in self._sinks.items())
        aside = f"{len(self.discarded)} discarded, {len(self.late)} late, {len(self.errors)} errors"
        return f"<Result {{{counts}}}, {aside}>"


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
    sides = {stream: MemorySink() for stream in SIDE_STREAMS}

    from penstock.spark.run import follow

    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        blueprint = draw(job, folder=Path(folder) / job.name, buckets=1, sides=sides)
        report = follow(
            job,
            blueprint.with_ends({**ends, **sinks}),
            "drained",
            master=master or "local[2]",
            conf=conf,
        )
    return Result(
        {name: sink.records for name, sink in sinks.items()},
        [Discarded.from_record(record) for record in sides[DISCARDED].records],
        [Late.from_record(record) for record in sides[LATE].records],
        [Failed.from_record(record) for record in sides[ERRORS].records],
        report,
    )
