"""Columns on their way through a job, without Spark: Arrow tasks, schemas, and rows for Spark itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from engine_support import LocalRun, records

from penstock.columns import Columns
from penstock.connect.driver_connectors import Collected, MemorySource
from penstock.engine.execution.batch_stages import (
    NATIVE,
    SUMMARY,
    BatchPart,
    ResumedPart,
    run_resumed_stage,
    run_source_stage,
)
from penstock.engine.side_streams import Failed
from penstock.engine.storage.serialization import unpack
from penstock.engine.windows.watermarks import BatchClock, TimeProgress
from penstock.errors import TaskError
from penstock.graph.aggregations import Count
from penstock.graph.connector_api import Sink, SinkWriter, WriteContext
from penstock.graph.job import Job
from penstock.graph.tasks import ArrowTask, Sql
from penstock.record import Record


def job_of(*tasks: Any, schema: Any = "n long", **options: Any) -> Job:
    job = Job("columns")
    vertex = job.source("rows", MemorySource(), schema=schema)
    for number, task in enumerate(tasks):
        vertex = vertex >> job.task(f"task{number}", task, **options)
    vertex >> job.sink("out", _NoSink())
    return job


class _NoSink(Sink):
    def writer(self, context: WriteContext) -> SinkWriter:
        raise NotImplementedError

    def commit(self, batch: int, receipts: Any) -> None:
        raise NotImplementedError


def plus_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "n", pc.add(batch["n"], 1))


def rows(*numbers: int) -> list[Record]:
    return [Record(f"k{number}", {"n": number}) for number in numbers]


def out(run: LocalRun) -> list[tuple[Any, Any]]:
    return sorted((record.key, record.value["n"]) for record in run.sinks["out"].records)


def test_columns_keep_their_keys_from_task_to_task(tmp_path: Path) -> None:
    run = LocalRun(job_of(ArrowTask(plus_one), ArrowTask(plus_one)), tmp_path)
    run.step(rows(1, 2))
    assert out(run) == [("k1", 3), ("k2", 4)]
    assert run.summaries[0].records_in == {1: 2, 2: 2, 3: 2}


def test_fewer_rows_have_no_keys_but_their_own(tmp_path: Path) -> None:
    def first(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch.select(["n"]).slice(0, 1)
        yield batch.slice(1, 1)

    run = LocalRun(job_of(ArrowTask(first)), tmp_path)
    run.step(rows(1, 2, 3))
    assert [(r.key, r.value) for r in run.sinks["out"].records] == [(None, {"n": 1}), ("k2", {"n": 2})]


def test_times_of_a_result_may_be_timestamps(tmp_path: Path) -> None:
    def timed(batch: pa.RecordBatch) -> pa.Table:
        times = pa.array([1_500_000] * len(batch), pa.timestamp("us", "UTC"))
        return pa.table({"n": batch["n"], "_ts": times, "_key": batch["n"]})

    run = LocalRun(job_of(ArrowTask(timed)), tmp_path)
    run.step(rows(7))
    assert run.sinks["out"].records == [Record(7, {"n": 7}, 1.5)]


def test_columns_become_records_where_a_task_takes_records(tmp_path: Path) -> None:
    job = Job("count")
    source = job.source("rows", MemorySource(), schema="n long")
    odd = job.task("odd", ArrowTask(lambda b: b.filter(pc.equal(pc.bit_wise_and(b["n"], 1), 1))))
    key = job.task("key", lambda r: (r.value["n"] % 10, 1))
    source >> odd >> key >> job.task("count", Count()) >> job.sink("out", _NoSink())
    run = LocalRun(job, tmp_path).drain(rows(1, 2, 11, 3))
    assert run.out("out") == records((1, 2), (3, 1))


def test_nothing_is_what_none_stands_for(tmp_path: Path) -> None:
    run = LocalRun(job_of(ArrowTask(lambda batch: None)), tmp_path)
    run.step(rows(1))
    assert out(run) == []


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (ArrowTask(lambda batch: 3), "it must return a pyarrow.RecordBatch"),
        (ArrowTask(lambda batch: 1 // 0), "ZeroDivisionError"),
    ],
)
def test_an_arrow_task_that_fails_is_named(tmp_path: Path, task: ArrowTask, reason: str) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        LocalRun(job_of(task), tmp_path).step(rows(1))
    assert caught.value.vertex == "task0"


def test_what_does_not_fit_is_left_out_where_it_comes_out(tmp_path: Path) -> None:
    job = job_of(lambda r: {"n": "one"}, schema=None)
    job.vertices[1].schema = "n long"
    assert _misfits(job, tmp_path) == [("task0", "field 'n': 'one' is not a long")]


def test_what_does_not_fit_is_left_out_where_it_goes_in(tmp_path: Path) -> None:
    job = job_of(lambda r: r, schema=None, input_schema="n string")
    assert _misfits(job, tmp_path) == [("task0", "field 'n': 1 is not a string")]


def _misfits(job: Job, folder: Path) -> list[tuple[str, str]]:
    run = LocalRun(job, folder)
    run.step(rows(1))
    assert out(run) == []
    entries = [Failed.from_record(record) for record in run.sides["errors"].records]
    assert all(entry.error == "SchemaMismatch" for entry in entries)
    return [(entry.vertex, entry.message) for entry in entries]


def test_only_the_rows_that_an_arrow_function_raises_for_are_left_out(tmp_path: Path) -> None:
    def inverse(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array([12 // n for n in batch["n"].to_pylist()])})

    job = job_of(ArrowTask(inverse))
    job.on_error = "discard"
    run = LocalRun(job, tmp_path)
    run.step(rows(1, 2, 0, 3, 4, 0, 6))
    assert sorted(r.value["n"] for r in run.sinks["out"].records) == [2, 3, 4, 6, 12]
    entries = [Failed.from_record(record) for record in run.sides["errors"].records]
    assert [(e.vertex, e.error, e.value) for e in entries] == [("task0", "ZeroDivisionError", {"n": 0})] * 2


def test_rows_for_spark_are_arrays_of_structs(tmp_path: Path) -> None:
    run = LocalRun(job_of(Sql("SELECT * FROM input")), tmp_path)
    part = BatchPart(0, 0, {}, source="rows", split=(0, rows(1, 2)))
    (slot, kind, structs), summary = run_source_stage(run.program, part)
    assert (slot, kind, summary[1]) == (0, NATIVE, SUMMARY)
    assert structs.to_pylist() == [
        {"n": 1, "_key": "k1", "_ts": None},
        {"n": 2, "_key": "k2", "_ts": None},
    ]
    assert unpack(summary[2])[0].records_in == {1: 2}


def test_what_comes_back_from_spark_goes_on(tmp_path: Path) -> None:
    run = LocalRun(job_of(Sql("SELECT * FROM input")), tmp_path)
    batch = pa.record_batch({"n": [5], "_key": ["a"], "_ts": [2.0]})
    part = ResumedPart(3, 1, BatchClock(0.0, False, TimeProgress()))
    (row,) = run_resumed_stage(run.program, part, [Columns.from_batch(batch)])
    summary = unpack(row[2])[0]
    assert summary.receipts == {"out": [Collected([Record("a", {"n": 5}, 2.0)], [])]}
    assert summary.records_out == {1: 1}


def test_what_waits_for_spark_survives_in_feedback(tmp_path: Path) -> None:
    job = Job("feedback")
    words = job.source("rows", MemorySource())
    shape = job.task("shape", lambda r: {"n": r.value}, schema="n long")
    query = job.task("query", Sql("SELECT * FROM input"))
    words >> job.task("count", Count()) >> shape >> query >> job.sink("out", _NoSink())
    run = LocalRun(job, tmp_path, buckets=1)
    run.step([("a", 1), ("a", 1)])
    (name,) = run.feedback
    assert name.endswith(".native")
    (row, _) = run_source_stage(run.program, BatchPart(1, 0, {}, feedback=name))
    assert row[2].to_pylist() == [{"n": 2, "_key": "a", "_ts": None}]
