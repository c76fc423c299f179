"""A query that is being stopped runs no batch any more."""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock.engine.blueprint import make_blueprint
from penstock.spark.spark_query import SparkQuery


class Frame:
    """The rows of a batch, which nobody may compute."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was read")


def test_the_empty_first_batch_is_not_run_once_a_stop_is_confirmed(tmp_path: Path) -> None:
    """Stopping a query within a batch interrupts calls of Java."""
    job = ps.Job("early")
    job.source("in", ps.MemorySource()) >> job.sink("out", ps.MemorySink())
    blueprint = make_blueprint(job, folder=tmp_path, buckets=1, sides={})
    blueprint.folders.create()
    blueprint.folders.stop_answer.touch()
    query = SparkQuery(None, blueprint)
    query._run_batch(Frame(), 0)
    assert query._failure is None
    assert query.batches.report.batches == 0
