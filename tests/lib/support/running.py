"""Runs jobs in the process of a test, on Spark or without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.batch_report import Report
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.graph.job import Job
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.testing.local_engine import LocalRuntime
from support.engines import SPARK

MASTER = "local[2]"
"""Of the one Spark session that all tests in a process share: another master would start another Java."""


@dataclass(frozen=True)
class Engine:
    """What runs the jobs of a test. The options are those of ``ps.start`` and ``ps.run``."""

    name: str

    def start(
        self,
        job: Job,
        *,
        folder: str | Path | None = None,
        fresh: bool = False,
        taken: bool = False,
        replica_spec: ReplicaSpec | None = None,
        on_progress: Callable[[Report], None] | None = None,
    ) -> Handle:
        """Start a job and return a handle of it."""
        if self.name == SPARK:
            from penstock.spark.spark_runtime import start

            return start(
                job,
                master=MASTER,
                folder=folder,
                fresh=fresh,
                taken=taken,
                replica_spec=replica_spec,
                on_progress=on_progress,
            )
        return start_job(
            job,
            LocalRuntime,
            folder=folder,
            fresh=fresh,
            taken=taken,
            replica_spec=replica_spec,
            on_progress=on_progress,
        )

    def run(
        self,
        job: Job,
        until: str | float | None = "drained",
        *,
        folder: str | Path | None = None,
        fresh: bool = False,
        on_progress: Callable[[Report], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Report:
        """Run a job and return what it has done."""
        with self.start(job, folder=folder, fresh=fresh, on_progress=on_progress) as handle:
            handle.follow(until, stop=stop)
        return handle.report

    def feed(
        self,
        job: Job,
        feed: Mapping[str, Iterable[Any]] | None = None,
        *,
        partitions: int = 1,
        batch: int | None = None,
    ) -> ps.testing.Result:
        """Run a job over lists, as ``ps.testing.run`` does."""
        return ps.testing.run(job, feed, partitions=partitions, batch=batch, engine=self.name)


def start_without_spark(job: Job, *, master: Any = None, conf: Any = None, **options: Any) -> Handle:
    """Start a job without Spark, in place of ``penstock.spark.spark_runtime.start``."""
    return start_job(job, LocalRuntime, **options)
