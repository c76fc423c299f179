"""Spark as what runs the batches of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.runtime import Query
from penstock.graph.job import Job
from penstock.spark.query import SparkQuery
from penstock.spark.session import open_session
from penstock.spark.settings import check_session, settings_for


class SparkRuntime:
    """Runs queries in a Spark session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    def open(
        cls, job: Job, master: str | None = None, conf: Mapping[str, object] | None = None
    ) -> SparkRuntime:
        """Start the session that a job needs, or take the one that runs."""
        session = open_session(master, settings_for(job, master, job.spark, conf), job.spark, conf)
        context = session.sparkContext
        if job.guarantee == "at-most-once":  # Somebody else may have started the session.
            check_session(job, context.master, dict(context.getConf().getAll()))
        return cls(session)

    @property
    def parallelism(self) -> int:
        """How many tasks Spark runs at once."""
        return int(self._session.sparkContext.defaultParallelism)

    def query(self, blueprint: Blueprint, before: Query | None = None) -> SparkQuery:
        """Return a query whose code can be sent to the workers."""
        query = SparkQuery(self._session, blueprint, before)
        query.pack()
        return query

    def obstacles(self, before: Job, after: Job) -> list[str]:
        """Return why a job cannot become another one in the same session."""
        master = self._session.sparkContext.master
        reasons = []
        if after.spark != before.spark:
            reasons.append("its Spark settings have changed, and they belong to the session, which goes on")
        if settings_for(after, master) != settings_for(before, master):
            reasons.append(f"{after.guarantee} needs a session in which Spark repeats tasks otherwise")
        return reasons
