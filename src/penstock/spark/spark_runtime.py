"""Spark as the runtime of jobs: ``run`` and ``start`` for users, ``SparkRuntime`` for the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from penstock.engine.batch_report import Report
from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.job_handle import Handle, is_duration
from penstock.engine.driver.job_start import start_job
from penstock.engine.driver.query_runtime import Query
from penstock.errors import JobFailedError, SettingError
from penstock.graph.job import Job
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.spark.spark_failures import JAVA_LOST, has_java_ended
from penstock.spark.spark_query import SparkQuery
from penstock.spark.spark_session import open_session
from penstock.spark.spark_settings import check_session, settings_for


class SparkRuntime:
    """Runs queries in a Spark session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    def open(
        cls, job: Job, master: str | None = None, conf: Mapping[str, object] | None = None
    ) -> SparkRuntime:
        """Start the session that a job needs, or use the running one."""
        session = open_session(master, settings_for(job, master, job.spark, conf), job.spark, conf)
        context = session.sparkContext
        if job.guarantee == "at-most-once":  # Other code may have started the session.
            check_session(job, context.master, dict(context.getConf().getAll()))
        return cls(session)

    @property
    def parallelism(self) -> int:
        """The number of tasks that Spark runs at once."""
        return int(self._session.sparkContext.defaultParallelism)

    def query(self, blueprint: Blueprint, before: Query | None = None) -> SparkQuery:
        """Return a query whose code can be sent to the workers."""
        query = SparkQuery(self._session, blueprint, before)
        query.pack()
        return query

    def obstacles(self, before: Job, after: Job) -> list[str]:
        """Return why a job cannot be changed into another one in the same session."""
        master = self._session.sparkContext.master
        reasons = []
        if after.spark != before.spark:
            reasons.append("its Spark settings have changed, which needs a new session")
        if settings_for(after, master) != settings_for(before, master):
            reasons.append(f"{after.guarantee} needs a new session with other settings for task failures")
        return reasons


def run(
    job: Job,
    until: str | float | None = "drained",
    *,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    on_progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Run a job in this process and return its report.

    ``until`` is ``"drained"`` (all records of the sources are processed, including those in loops), a number
    of seconds, or None for a run that only ``stop`` ends. A job continues where its last run ended, unless it
    is ``fresh`` or has a source that does not outlive the program. ``folder`` is the folder of its state,
    ``jobs/NAME`` below Penstock's home by default.
    """
    _check_until(until)
    with start(job, master=master, conf=conf, folder=folder, fresh=fresh, on_progress=on_progress) as handle:
        handle.follow(until, stop=stop)
    return handle.report


def start(
    job: Job,
    *,
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
    taken: bool = False,
    replica_spec: ReplicaSpec | None = None,
    on_progress: Callable[[Report], None] | None = None,
) -> Handle:
    """Start a job in this process and return a handle of the running job.

    The options are those of :func:`run`; ``on_progress`` is called by :meth:`Handle.wait`, in the waiting
    thread. A running job is stopped when the program exits. A folder that was ``taken`` over from another
    process is never created again if it is missing. With a ``replica_spec`` the job runs the batches that its
    replicas agree on.
    """
    try:
        return start_job(
            job,
            partial(SparkRuntime.open, job, master, conf),
            folder=folder,
            fresh=fresh,
            taken=taken,
            replica_spec=replica_spec,
            on_progress=on_progress,
        )
    except Exception as error:
        # An operating system error has been raised as JobFailedError already.
        if has_java_ended(error) or has_java_ended(error.__cause__):
            raise JobFailedError(f"job {job.name!r} cannot start: {JAVA_LOST}") from error
        raise


def _check_until(until: Any) -> None:
    if not (until is None or until == "drained" or is_duration(until)):
        raise SettingError(f"until takes 'drained', a number of seconds or None, not {until!r}")
