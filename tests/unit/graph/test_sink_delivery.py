"""What a job with replicas gives at each sink is told: by delivery(), in the plan, and as a warning."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from tests.unit.graph.samples import NoSink, NoSource

import penstock as ps
from penstock.graph.job import Job


class Committed(NoSink):
    transactional = True


class Shared(Committed):
    shared = True


def job_of(**settings: Any) -> Job:
    job = Job("counts", **settings)
    lines = job.source("lines", NoSource())
    for name, sink in (("log", Shared()), ("web", Committed()), ("screen", NoSink())):
        lines >> job.sink(name, sink)
    return job


def test_each_sink_is_one_of_these() -> None:
    expected = {"log": "first-writer-wins", "web": "by-the-winner", "screen": "every-replica"}
    assert job_of().delivery() == expected
    assert job_of(k=2).delivery() == expected
    held = job_of(replicas={"k": 1, "publisher": "primary"}).delivery()
    assert held == {**expected, "screen": "by-the-primary"}


def test_the_sinks_of_penstock() -> None:
    job = Job("all")
    for name, sink in {
        "log": ps.LogSink("out"),
        "file": ps.FileSink("/none"),
        "database": ps.DatabaseSink(print, "INSERT INTO t VALUES (?)"),
        "function": ps.ForeachBatchSink(print),
        "http": ps.HttpSink("http://127.0.0.1:1/"),
        "memory": ps.MemorySink(),
        "console": ps.ConsoleSink(),
    }.items():
        job.sink(name, sink)
    assert job.delivery() == {
        "log": "first-writer-wins",
        "file": "first-writer-wins",
        "database": "first-writer-wins",
        "function": "by-the-winner",
        "http": "by-the-winner",
        "memory": "every-replica",
        "console": "every-replica",
    }


def test_validation_warns_of_copies_and_says_what_to_do() -> None:
    with pytest.warns(ps.DeliveryWarning) as caught:
        job_of(k=2).validate()
    (warning,) = caught
    assert str(warning.message) == (
        "job 'counts', sink 'screen': each of the 3 replicas delivers every record, with an id. Read the"
        " output with penstock.deduplicated, or use a sink that takes each record once, such as"
        " LogSink, FileSink or DatabaseSink"
    )
    assert warning.filename == __file__
    with pytest.warns(ps.DeliveryWarning, match="has not delivered when it dies are lost"):
        job_of(replicas={"k": 1, "publisher": "primary"}).validate()


@pytest.mark.parametrize("settings", [{}, {"replicas": {"warm_standby": True}}])
def test_without_replicas_there_is_nothing_to_warn_of(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job_of(**settings).validate()


@pytest.mark.filterwarnings("ignore::penstock.errors.DeliveryWarning")
def test_the_plan_says_it() -> None:
    text = job_of(k=1).explain()
    assert text.startswith("Job counts: 4 vertices, 3 edges; throughput mode, exactly-once, 2 replicas\n")
    assert text.endswith(
        "Sinks\n"
        "  log     Shared, from lines\n"
        "          each record once (first-writer-wins)\n"
        "  web     Committed, from lines\n"
        "          each batch once, and again if its replica dies before it confirms (by-the-winner)\n"
        "  screen  NoSink, from lines\n"
        "          each record once from every replica, with an id (every-replica)\n"
    )
    assert "first-writer-wins" not in job_of().explain()


def native_job(sink: NoSink, *, by_key: bool, **settings: Any) -> Job:
    job = Job("columns", **settings)
    lines = job.source("lines", NoSource(), schema="n long")
    chosen = job.task("chosen", ps.Sql("SELECT n FROM input"), schema="n long")
    then = job.task("then", ps.Count() if by_key else lambda record: [record])
    lines >> chosen >> then >> job.sink("out", sink)
    return job


@pytest.mark.filterwarnings("ignore::penstock.errors.DeliveryWarning")
def test_rows_without_an_order_can_have_no_ids() -> None:
    with pytest.raises(ps.GraphError) as caught:
        native_job(NoSink(), by_key=False, k=1).validate()
    (problem,) = caught.value.problems
    assert (problem.code, problem.vertex) == ("bad-k", "out")
    assert "records of 'chosen' have none" in problem.message
    native_job(NoSink(), by_key=True, k=1).validate()
    native_job(Shared(), by_key=False, k=1).validate()
    native_job(NoSink(), by_key=False).validate()
