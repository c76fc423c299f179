"""What Spark runs itself: in which order, and which ports get records from Python."""

from __future__ import annotations

from tests.unit.graph.samples import NoSink, NoSource

from penstock.graph.aggregations import Count
from penstock.graph.job import Job
from penstock.graph.tasks import Sql
from penstock.plan.physical_plan import Channel, compile_plan
from penstock.plan.plan_text import explain_job


def sql() -> Sql:
    return Sql("SELECT * FROM input")


def same(record: object) -> object:
    return record


def test_a_job_without_such_vertices_has_no_native_plan() -> None:
    job = Job("plain")
    job.source("rows", NoSource()) >> job.task("same", same) >> job.sink("out", NoSink())
    native = compile_plan(job).native
    assert (native.order, native.slots, native.sources, native.feedback) == ((), (), (), False)


def test_records_come_back_from_spark_and_go_there_again() -> None:
    job = Job("back-and-forth")
    rows = job.source("rows", NoSource(), schema="n long")
    late = job.task("late", sql())  # added before what it depends on
    early = job.task("early", sql())
    python = job.task("python", same, schema="n long")
    rows >> early >> python >> late >> job.sink("out", NoSink())
    plan = compile_plan(job)
    native = plan.native
    assert native.order == (early.index, late.index)
    assert [(slot.vertex, slot.port) for slot in native.slots] == [(early.index, "in"), (late.index, "in")]
    assert native.source_feeds == (0,)
    assert native.feeds == ((1,), ())
    assert native.sources == ("rows",)
    assert not native.feedback
    assert python.index in plan.direct
    assert plan.hops[rows.index, "out"][0].channel is Channel.NATIVE


def test_neighbours_in_spark_need_no_slot() -> None:
    job = Job("neighbours")
    rows = job.source("rows", NoSource(), schema="n long")
    rows >> job.task("first", sql()) >> job.task("second", sql()) >> job.sink("out", NoSink())
    rows >> job.sink("raw", NoSink())
    native = compile_plan(job).native
    assert len(native.slots) == 1
    assert native.sources == (), "Python needs its records too"


def test_what_comes_from_behind_the_shuffle_waits_for_the_next_batch() -> None:
    job = Job("feedback")
    rows = job.source("rows", NoSource())
    count = job.task("count", Count())
    shape = job.task("shape", same, schema="n long")
    rows >> count >> shape >> job.task("query", sql()) >> job.sink("out", NoSink())
    plan = compile_plan(job)
    assert plan.native.feedback
    assert plan.native.source_feeds == (0,)
    text = explain_job(job)
    assert "shape ─▶ query (as columns)" in text
    assert "fed by columns from shape" in text
    assert "spark    query" in text
