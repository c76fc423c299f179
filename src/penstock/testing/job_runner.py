"""Runs a job on lists as input: on Spark, in a session that is kept, or in this process without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from penstock.connect.driver_connectors import MemorySink, MemorySource
from penstock.engine.batch_report import Report
from penstock.engine.blueprint import make_blueprint
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.query_runtime import Runtime
from penstock.engine.side_streams import Discarded, Failed, Late
from penstock.errors import SettingError
from penstock.graph.connector_api import Sink, Source
from penstock.graph.job import Job
from penstock.graph.job_loader import load_job
from penstock.graph.vertex import DISCARDED, ERRORS, LATE, SIDE_STREAMS
from penstock.parameters import params_fault, params_set_to
from penstock.record import Record
from penstock.testing.local_engine import LocalRuntime, refuse_native

ENGINES = ("spark", "local")


class Result(Mapping[str, "list[Record]"]):
    """The records of each sink, in order, and those of the side streams."""

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
    engine: str = "spark",
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    params: Mapping[str, str] | None = None,
) -> Result:
    """Run a job on a feed until it is drained.

    The feed maps the name of each source to its items: values, ``(key, value)`` pairs or records. All items
    form one batch, unless ``batch`` limits the number of records in a batch. ``partitions`` is the number of
    tasks that read them.

    ``engine="local"`` runs the job in this process, in milliseconds and without Java. Batches are planned,
    computed and committed by the same code as on Spark. Vertices that Spark itself runs (``ps.Sql``,
    ``ps.DataFrameTask``) are not supported, nor are ``master`` and ``conf``.

    ``params`` are the parameters that the job's code reads from ``ps.params`` while it runs. Parameters that
    it reads when its file is imported must be given to :func:`load`.
    """
    if engine not in ENGINES:
        raise SettingError(f"engine takes {' or '.join(map(repr, ENGINES))}, not {engine!r}")
    if engine == "local" and (master is not None or conf is not None):
        raise SettingError("engine='local' takes neither master nor conf, because it does not use Spark")
    if params is not None:
        with params_set_to(_checked(params)):
            return run(job, feed, partitions=partitions, batch=batch, engine=engine, master=master, conf=conf)
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

    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        blueprint = make_blueprint(job, folder=Path(folder) / job.name, buckets=1, sides=sides)
        blueprint = blueprint.with_ends({**ends, **sinks})
        if engine == "local":
            refuse_native(blueprint)
        open_runtime: Callable[[], Runtime]
        open_runtime = LocalRuntime if engine == "local" else partial(_open_spark, job, master, conf)
        with Handle.begin(job, lambda _: blueprint, open_runtime) as handle:
            handle.follow("drained")
        report = handle.report
    return Result(
        {name: sink.records for name, sink in sinks.items()},
        [Discarded.from_record(record) for record in sides[DISCARDED].records],
        [Late.from_record(record) for record in sides[LATE].records],
        [Failed.from_record(record) for record in sides[ERRORS].records],
        report,
    )


def load(target: str | Path, params: Mapping[str, str] | None = None) -> Job:
    """Return the job that a file defines (``FILE[:JOB]``), loaded as by ``penstock run --param``."""
    with params_set_to(_checked(params or {})):
        return load_job(str(target))


def _checked(params: Mapping[str, str]) -> Mapping[str, str]:
    fault = params_fault(params)
    if fault is not None:
        raise SettingError(f"params: {fault}")
    return params


def _open_spark(job: Job, master: str | None, conf: Mapping[str, object] | None) -> Runtime:
    from penstock.spark.spark_runtime import SparkRuntime

    return SparkRuntime.open(job, master or "local[2]", conf)
