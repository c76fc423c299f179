"""Spark cannot reach its own processes for a while: the batch, or the query, is run again in the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import util
from pyspark.errors import PySparkRuntimeError

import penstock as ps
from penstock.engine.driver import batch_committer, query_launch
from penstock.engine.driver.batch_committer import ATTEMPTS
from support.running import Engine


class Refusing:
    """Keeps this process from fetching results from Java, as on a machine that is too busy, so many times."""

    def __init__(self) -> None:
        self.left = 0
        self.refused = 0
        self._connect = util.local_connect_and_auth

    def __call__(self, port: Any, secret: Any) -> Any:
        if not self.left:
            return self._connect(port, secret)
        self.left -= 1
        self.refused += 1
        errors = f"tried to connect to {port}, but an error occurred: timed out"
        raise PySparkRuntimeError(errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": errors})


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    refusal = Refusing()
    monkeypatch.setattr(util, "local_connect_and_auth", refusal)
    monkeypatch.setattr(batch_committer, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(query_launch, "PAUSES", (0.0, 0.0))
    return refusal


def _job(guarantee: str = "exactly-once") -> tuple[ps.Job, ps.MemorySink]:
    job = ps.Job("busy", guarantee=guarantee)
    sink = ps.MemorySink()
    source = job.source("in", ps.MemorySource([(n % 3, n) for n in range(30)], max_records_per_batch=10))
    source >> job.task("count", ps.Count()) >> job.sink("out", sink)
    return job, sink


@pytest.mark.parametrize(
    ("times", "queries"), [pytest.param(ATTEMPTS - 1, 1, marks=pytest.mark.full), (ATTEMPTS + 1, 2)]
)
def test_a_batch_and_then_the_query_are_run_again(
    spark: Engine, refusing: Refusing, times: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.spark_query import SparkQuery

    launched = []
    begin = SparkQuery._begin

    def counted(query: SparkQuery) -> None:
        launched.append(query)
        begin(query)

    monkeypatch.setattr(SparkQuery, "_begin", counted)
    job, sink = _job()
    refusing.left = times
    report = spark.run(job)
    assert refusing.refused == times
    assert len(launched) == queries
    assert report.batches == 3
    last = {record.key: record.value for record in sink.records}
    assert last == {0: 10, 1: 10, 2: 10}, "each record was counted once"


def test_one_sentence_is_shown_when_it_does_not_pass(
    spark: Engine, refusing: Refusing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_launch, "PAUSES", ())
    job, sink = _job()
    refusing.left = ATTEMPTS
    with pytest.raises(ps.JobFailedError) as raised:
        spark.run(job)
    told = str(raised.value)
    assert "Python could not connect to Java to fetch a result" in told
    assert "\n" not in told
    assert "Traceback" not in told
    assert sink.records == []


def test_at_most_once_nothing_is_run_again(spark: Engine, refusing: Refusing) -> None:
    job, sink = _job("at-most-once")
    refusing.left = 1
    with pytest.raises(ps.JobFailedError, match="a batch is not repeated"):
        spark.run(job)
    assert refusing.refused == 1
    assert sink.records == []
