"""Synchronised ports: which sets are aligned, and what waits."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps


class _Pair(ps.Task):
    inputs, sync = ("left", "right"), True

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        [left], [right] = inputs["left"], inputs["right"]
        if left.value == "poison":
            outputs.emit(left.key, "never seen")
            raise ValueError("poison")
        outputs.emit(left.key, (left.value, right.value))


def _job(by: Any = None, **options: Any) -> ps.Job:
    job = ps.Job("pairs", **options)
    pair = job.task("pair", _Pair())
    for side in ("left", "right"):
        job.connect(job.source(side, ps.MemorySource()), pair[side], by=by)
    pair >> job.sink("out", ps.MemorySink())
    return job


def test_records_of_a_key_are_aligned_in_their_order(tmp_path: Path) -> None:
    run = LocalRun(_job(), tmp_path)
    run.run({("left", "0"): [("a", 1), ("b", 2), ("a", 3)]})
    assert run.out("out") == {}
    run.run({("right", "0"): [("b", 20), ("a", 10)]})
    assert run.out("out") == {("a", (1, 10)): 1, ("b", (2, 20)): 1}
    run.run({("left", "0"): [("c", 5)], ("right", "0"): [("a", 30), ("a", 40)]})
    assert run.out("out") == {("a", (1, 10)): 1, ("b", (2, 20)): 1, ("a", (3, 30)): 1}


def test_records_without_keys_are_aligned_in_their_order(tmp_path: Path) -> None:
    run = LocalRun(_job(), tmp_path)
    run.run({("left", "0"): [1, 2, 3], ("right", "0"): [10]})
    run.run({("right", "0"): [20]})
    assert run.out("out") == {(None, (1, 10)): 1, (None, (2, 20)): 1}


def test_round_robin_aligns_by_order_whatever_the_keys(tmp_path: Path) -> None:
    run = LocalRun(_job(ps.ROUND_ROBIN), tmp_path, buckets=3)
    run.run({("left", "0"): [("a", 1), ("b", 2)], ("right", "0"): [("x", 10), ("y", 20)]})
    assert run.out("out") == {("a", (1, 10)): 1, ("b", (2, 20)): 1}


def test_a_long_queue_is_written_once(tmp_path: Path) -> None:
    run = LocalRun(_job(), tmp_path, buckets=1)
    run.run({("left", "0"): list(range(20_000))})
    for n in range(5):
        run.run({("right", "0"): [n]})
    assert sorted(value for _, value in run.out("out")) == [(n, n) for n in range(5)]
    run.run({("right", "0"): list(range(5, 20_000))})
    assert len(run.sinks["out"].records) == 20_000


def test_a_set_that_fails_goes_into_the_errors_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(ps.TaskError, match="poison"):
        LocalRun(_job(), tmp_path / "fail").run({("left", "0"): ["poison"], ("right", "0"): [1]})
    run = LocalRun(_job(on_error="discard"), tmp_path / "discard")
    run.run({("left", "0"): ["poison", 2], ("right", "0"): [1, 2]})
    assert run.out("out") == {(None, (2, 2)): 1}
    [failed] = [ps.Failed.from_record(record) for record in run.sides["errors"].records]
    assert (failed.vertex, failed.error, failed.message) == ("pair", "ValueError", "poison")
    assert failed.value == {"left": "poison", "right": 1}


@pytest.mark.parametrize("ts", ["noon", datetime(2026, 1, 1)], ids=["text", "datetime"])
def test_a_set_whose_times_cannot_be_compared_goes_into_the_errors(tmp_path: Path, ts: Any) -> None:
    lanes = {
        ("left", "0"): [ps.Record("a", 1, ts), ps.Record("a", 2, 1.0)],
        ("right", "0"): [ps.Record("a", 10, 1.0), ps.Record("a", 20, 2.0)],
    }
    with pytest.raises(ps.TaskError, match="the record's time must be a number of seconds"):
        LocalRun(_job(), tmp_path / "fail").run(lanes)
    run = LocalRun(_job(on_error="discard"), tmp_path / "discard")
    run.run(lanes)
    assert [tuple(record) for record in run.sinks["out"].records] == [("a", (2, 20), 2.0)]
    [failed] = [ps.Failed.from_record(record) for record in run.sides["errors"].records]
    assert (failed.value, failed.ts) == ({"left": 1, "right": 10}, 1.0)
    assert repr(ts) in failed.message


def test_three_ports_in_a_loop_count_the_rounds_of_the_set(tmp_path: Path) -> None:
    class Next(ps.Task):
        inputs, outputs, sync = ("a", "b"), ("again", "done"), True

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            [a], [b] = inputs["a"], inputs["b"]
            outputs.emit(a.key, a.value + 1, port="again")
            outputs.emit(a.key, (a.value, b.value), port="done")

    job = ps.Job("rounds", max_iterations=2)
    pair = job.task("next", Next())
    job.source("a", ps.MemorySource()) >> pair["a"]
    job.source("b", ps.MemorySource()) >> pair["b"]
    pair["again"] >> pair["a"]
    pair["done"] >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    run.run({("a", "0"): [("k", 0)], ("b", "0"): [("k", n) for n in range(10)]})
    while run.feedback:
        run.run({})
    assert run.out("out") == {("k", (0, 0)): 1, ("k", (1, 1)): 1, ("k", (2, 2)): 1}
    assert len(run.discarded.records) == 1
