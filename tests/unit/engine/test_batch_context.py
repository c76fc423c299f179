"""What user code asks instead of the clock and of chance."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
from engine_support import LocalRun, Record

import penstock as ps
from penstock.engine.batch_context import TaskScope
from penstock.engine.storage.keyed_state import drop_cached_state
from support.waiting import DEADLINE


class Lottery(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return state or 1, [(key, ("stateful", ps.ctx.batch, ps.ctx.now, ps.ctx.random.random()))]


class Draw(ps.Task):
    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs.get():
            outputs.emit(record.key, ("task", ps.ctx.batch, ps.ctx.now, ps.ctx.random.random()))


def _drawn(by: str, r: Record) -> tuple[Any, Any]:
    return r.key, (by, ps.ctx.batch, ps.ctx.now, ps.ctx.random.random())


def _job(name: str = "chance") -> ps.Job:
    job = ps.Job(name)
    source = job.source("source", ps.MemorySource())
    function = job.task(
        "function", lambda r: (r.key, ("function", ps.ctx.batch, ps.ctx.now, ps.ctx.random.random()))
    )
    again = job.task("again", lambda r: (r.key, ("again", ps.ctx.batch, ps.ctx.now, ps.ctx.random.random())))
    out = job.sink("out", ps.MemorySink())
    for task in (
        function,
        job.task("task", Draw()),
        job.task("stateful", Lottery()),
        job.task("windowed", Lottery(), window=ps.TimeWindow(10)),
        job.task("counted", Lottery(), window=ps.CountWindow(2)),
    ):
        source >> task >> out
    function >> again >> out
    return job


def _run(folder: Path, name: str = "chance", *, forgetful: bool = False) -> list[Record]:
    run = LocalRun(_job(name), folder)
    for batch in range(3):
        lanes = {("source", lane): [Record(key, 1, 10.0 * batch) for key in "abcab"] for lane in ("0", "1")}
        run.run(lanes, now=1000.0 + batch)
        if forgetful:
            drop_cached_state(run.blueprint.folders.state)
    run.end()
    return sorted(run.sinks["out"].records, key=repr)


def test_a_batch_that_is_run_again_gives_the_same(tmp_path: Path) -> None:
    first = _run(tmp_path / "first")

    assert _run(tmp_path / "again", forgetful=True) == first
    assert {record.value[0] for record in first} == {"function", "task", "stateful", "again"}
    assert {record.value[1:3] for record in first} >= {(0, 1000.0), (1, 1001.0), (2, 1002.0)}


def test_no_two_calls_get_the_same_number(tmp_path: Path) -> None:
    numbers = [record.value[3] for record in _run(tmp_path)]

    assert len(set(numbers)) == len(numbers)


def test_another_job_has_other_chances(tmp_path: Path) -> None:
    one, other = _run(tmp_path / "one"), _run(tmp_path / "other", "other")

    assert not {record.value[3] for record in one} & {record.value[3] for record in other}


def test_each_part_and_each_bucket_has_its_own_numbers() -> None:
    def first(kind: str, number: int, batch: int = 0, vertex: int = 0) -> float:
        scope = TaskScope("job", ("one", "two"), batch, 0.0, kind, number)
        scope.vertex = vertex
        return scope.random.random()

    assert first("part", 1) == first("part", 1)
    others = [first("part", 2), first("bucket", 1), first("part", 1, batch=1), first("part", 1, vertex=1)]
    assert len({first("part", 1), *others}) == 5
    moved = TaskScope("job", ("one", "two"), 0, 0.0, "bucket", 1)
    assert moved.random.random() == first("bucket", 1)
    moved.move_to(2)
    assert moved.random.random() == first("bucket", 2)


def test_functions_of_columns_have_it_too(tmp_path: Path) -> None:
    def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [ps.ctx.random.random() for _ in range(batch.num_rows)]
        return pa.record_batch(
            [pa.array(numbers), pa.array([ps.ctx.now] * batch.num_rows)], names=["n", "now"]
        )

    job = ps.Job("columns")
    source = job.source("source", ps.MemorySource(), schema="n double")
    source >> job.task("stamp", ps.ArrowTask(stamp)) >> job.sink("out", ps.MemorySink())
    found = []
    for name in ("one", "two"):
        run = LocalRun(job, tmp_path / name)
        run.run({("source", "0"): [{"n": 1.0}, {"n": 2.0}]}, now=77.0)
        found.append(run.sinks["out"].records)

    assert found[0] == found[1]
    assert {record.value["now"] for record in found[0]} == {77.0}
    assert found[0][0].value["n"] != found[0][1].value["n"]


def test_outside_of_a_batch_it_is_time_and_chance_as_usual(tmp_path: Path) -> None:
    _run(tmp_path)
    before = time.time()

    assert before <= ps.ctx.now <= time.time()
    assert ps.ctx.random.random() != ps.ctx.random.random()
    assert ps.ctx.batch == -1


def test_after_a_batch_that_failed_it_is_outside_again(tmp_path: Path) -> None:
    def fail(r: Record) -> None:
        raise ValueError(r)

    job = ps.Job("failing")
    job.source("source", ps.MemorySource()) >> job.task("fail", fail) >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    try:
        run.step(["a"])
    except ps.TaskError:
        pass
    else:
        raise AssertionError("it fails")

    assert ps.ctx.batch == -1


def test_two_threads_are_each_in_a_batch_of_its_own() -> None:
    first, second = TaskScope("one", ["task"], 1, 11.0, "part"), TaskScope("two", ["task"], 2, 22.0, "part")
    found = []

    def run(inside: threading.Event, left: threading.Event) -> None:
        with ps.ctx.within(second):
            inside.set()
            assert left.wait(DEADLINE)
            found.append((ps.ctx.batch, ps.ctx.now))
        found.append((ps.ctx.batch, 0.0))

    inside, left = threading.Event(), threading.Event()
    thread = threading.Thread(target=run, args=(inside, left))
    with ps.ctx.within(first):
        thread.start()
        assert inside.wait(DEADLINE)
        here = (ps.ctx.batch, ps.ctx.now)
    left.set()
    thread.join()

    assert here == (1, 11.0)
    assert found == [(2, 22.0), (-1, 0.0)]
    assert ps.ctx.batch == -1


def test_a_thread_of_the_users_is_in_the_batch_that_runs() -> None:
    with ps.ctx.within(TaskScope("job", ["task"], 3, 33.0, "part")), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (ps.ctx.batch, ps.ctx.now)).result() == (3, 33.0)


def test_code_that_holds_it_finds_that_of_its_process() -> None:
    ctx = ps.ctx

    assert pickle.loads(pickle.dumps(ctx)) is ctx
    assert cloudpickle.loads(cloudpickle.dumps(lambda: ctx))() is ctx
