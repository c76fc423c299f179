"""Jobs in one line each: exact results, exact discards; at least one of each kind on real Spark."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.parameters import params_set_to
from support.engines import each_on
from support.running import Engine


def _pairs(records: list[ps.Record]) -> Counter[tuple[Any, Any]]:
    return Counter((record.key, record.value) for record in records)


def _ends(job: ps.Job) -> tuple[ps.Vertex, ps.Vertex]:
    return job.source("in", ps.LogSource("not-opened")), job.sink("out", ps.LogSink("not-opened"))


def test_word_count(spark: Engine) -> None:
    job = ps.Job("wordcount")
    lines = job.source("lines", ps.LogSource("lines"))
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    count = job.task("count", ps.Count())
    out = job.sink("counts", ps.LogSink("counts"))
    lines >> split >> count >> out
    result = spark.feed(job, {"lines": ["a b", "b"]})
    assert sorted(result["counts"]) == [ps.Record("a", 1), ps.Record("b", 2)]
    assert result.discarded == []
    assert result.late == []
    assert result.errors == []
    assert result.report.batches == 1
    assert result.report.records_in == 2
    assert result.report.vertices["split"].records_out == 3


class _Dated(ps.StatefulTask):
    def prepare(self, config: Any) -> None:
        self.since = ps.params["since"]

    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        return state, [(key, (self.since, ps.params["since"], *values))]


def test_parameters_are_read_in_spark_s_own_processes(spark: Engine) -> None:
    """Before the shuffle and behind it, and for each of two jobs that share these processes."""
    for since in ("2025", "2026"):
        job = ps.Job("dated")
        source, out = _ends(job)
        (
            source
            >> job.task("first", lambda r: (r.value, ps.params["since"]))
            >> job.task("last", _Dated())
            >> out
        )
        with params_set_to({"since": since}):
            result = spark.feed(job, {"in": [1]})
        assert _pairs(result["out"]) == Counter({(1, (since,) * 3): 1})


@pytest.mark.parametrize(
    ("limit", "engine"), each_on(((str(n), n) for n in (0, 1, 3)), on_spark=["1"]), indirect=["engine"]
)
def test_self_loop(limit: int, engine: Engine) -> None:
    job = ps.Job("self-loop", max_iterations=limit)
    source, out = _ends(job)
    add = job.task("add", lambda r: r.value + 1)
    source >> add >> add
    add >> out
    result = engine.feed(job, {"in": [10, 20]})
    expected = [(None, start + n + 1) for start in (10, 20) for n in range(limit + 1)]
    assert _pairs(result["out"]) == Counter(expected)
    assert Counter((d.vertex, d.cycle, d.count, d.record.value) for d in result.discarded) == Counter(
        [("add", ("add",), limit + 1, start + limit + 1) for start in (10, 20)]
    )
    assert result.report.discarded == 2
    assert result.report.discarded_by_vertex == {"add": 2}


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_cycle_of_two(limit: int, engine: Engine) -> None:
    job = ps.Job("two", max_iterations=limit)
    source, out = _ends(job)
    add = job.task("add", lambda r: r.value + 1)
    double = job.task("double", lambda r: r.value * 2)
    source >> add >> double >> add
    double >> out
    value, expected = 1, []
    for _ in range(limit + 1):
        value = (value + 1) * 2
        expected.append((None, value))
    result = engine.feed(job, {"in": [1]})
    assert _pairs(result["out"]) == Counter(expected)
    assert [(d.cycle, d.count, d.record.value) for d in result.discarded] == [
        (("add", "double"), limit + 1, value)
    ]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_two_cycles_that_share_a_vertex(limit: int, engine: Engine) -> None:
    job = ps.Job("shared", max_iterations=limit)
    source, out = _ends(job)
    hub = job.task("hub", lambda r: r.value)
    left = job.task("left", lambda r: r.value + "l")
    right = job.task("right", lambda r: r.value + "r")
    source >> hub >> [left, right]
    left >> hub
    right >> hub
    hub >> out
    result = engine.feed(job, {"in": [""]})
    words = [""]
    expected = list(words)
    for _ in range(limit):
        words = [word + way for word in words for way in "lr"]
        expected += words
    assert _pairs(result["out"]) == Counter((None, word) for word in expected)
    assert Counter((d.vertex, d.count, d.record.value) for d in result.discarded) == Counter(
        ("hub", limit + 1, word + way) for word in words for way in "lr"
    )


@pytest.mark.parametrize(
    ("limit", "engine"), each_on(((str(n), n) for n in (0, 1, 3)), on_spark=["3"]), indirect=["engine"]
)
def test_cycle_through_a_stateful_task(limit: int, engine: Engine) -> None:
    job = ps.Job("stateful", max_iterations=limit)
    source, out = _ends(job)
    count = job.task("count", ps.Count())
    back = job.task("back", lambda r: r)
    source >> count >> back >> count
    count >> out
    result = engine.feed(job, {"in": [("x", 0), ("x", 0), ("y", 0)]})
    expected = [("x", 2 + n) for n in range(limit + 1)] + [("y", 1 + n) for n in range(limit + 1)]
    assert _pairs(result["out"]) == Counter(expected)
    assert Counter((d.vertex, d.cycle, d.count, d.record.key) for d in result.discarded) == Counter(
        [("count", ("count", "back"), limit + 1, key) for key in "xy"]
    )
    assert result.report.batches == limit + 1


def test_several_sources_sinks_and_keyed_stages(spark: Engine) -> None:
    job = ps.Job("many")
    left = job.source("left", ps.MemorySource())
    right = job.source("right", ps.MemorySource())
    total = job.task("total", ps.Sum())
    parity = job.task("parity", lambda r: ("even" if r.value % 2 == 0 else "odd", r.value))
    largest = job.task("largest", ps.Reduce(max))
    first = job.sink("first", ps.MemorySink())
    second = job.sink("second", ps.MemorySink())
    [left, right] >> total >> parity >> largest >> first
    total >> second
    feed = {"left": [("a", 1), ("b", 2)], "right": [("a", 4), ("c", 9)]}
    result = spark.feed(job, feed, partitions=2)
    assert _pairs(result["second"]) == Counter([("a", 5), ("b", 2), ("c", 9)])
    assert _pairs(result["first"]) == Counter([("odd", 9), ("even", 2)])


def test_records_reach_the_instances_they_should_in_spark_s_own_processes(spark: Engine) -> None:
    class Member(ps.Task):
        """Says which object it is: an instance has one of its own in each process it ever runs in."""

        def prepare(self, config: Any) -> None:
            self.had = 0

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs["in"]:
                self.had += 1
                outputs.emit(ps.ctx.instance, (record.value, os.getpid(), id(self), self.had))

    job = ps.Job("instances", buckets=4)
    numbers, rules = job.source("numbers", ps.MemorySource()), job.source("rules", ps.MemorySource())
    told = job.task("told", Member(), parallelism=3)
    job.connect(rules, told, by=ps.BROADCAST)
    told >> job.sink("told-to", ps.MemorySink())
    dealt = job.task("dealt", Member(), parallelism=4)
    again = job.task("again", lambda r: (ps.ctx.instance, (r.key, *r.value)), parallelism=4)
    behind = job.task("behind", lambda r: (ps.ctx.instance, r.key), parallelism=2)
    numbers >> dealt >> again >> job.sink("dealt-to", ps.MemorySink())
    numbers >> job.task("count", ps.Count()) >> behind >> job.sink("behind-to", ps.MemorySink())
    feed: dict[str, list[Any]] = {"numbers": [(n % 5, n) for n in range(40)], "rules": ["one", "two"]}
    result = spark.feed(job, feed, partitions=2)
    assert Counter((r.key, r.value[0]) for r in result["told-to"]) == Counter(
        (instance, rule) for instance in range(3) for rule in ("one", "two")
    )
    assert sorted(r.value[1] for r in result["dealt-to"]) == list(range(40))
    assert Counter(r.value[0] for r in result["dealt-to"]) == dict.fromkeys(range(4), 10)
    assert all(r.key == r.value[0] for r in result["dealt-to"]), "chained: it stays with its instance"
    objects = {(r.value[2], r.value[3]): r.value[0] for r in result["dealt-to"]}
    assert len(objects) == 4, "each instance has an object of its own"
    assert sorted(r.value for r in result["behind-to"]) == list(range(5))
    assert {r.key for r in result["behind-to"]} == {0, 1}


def test_the_source_is_read_and_each_vertex_run_once_a_record(tmp_path: Path, spark: Engine) -> None:
    trace = tmp_path / "trace"

    def seen(where: str) -> Any:
        def function(record: ps.Record) -> Any:
            with trace.open("a") as file:
                file.write(f"{where} {record.value}\n")
            return record

        return function

    job = ps.Job("once")
    source = job.source("in", ps.MemorySource())
    a, b, c = (job.task(name, seen(name)) for name in "abc")
    keyed = job.task("keyed", ps.Sum())
    sinks = [job.sink(f"sink{n}", ps.MemorySink()) for n in range(3)]
    source >> a >> [b, c]
    b >> sinks[0]
    c >> sinks[1]
    b >> keyed >> sinks[2]
    result = spark.feed(job, {"in": [(n, n) for n in range(5)]})
    assert [len(result[f"sink{n}"]) for n in range(3)] == [5, 5, 5]
    assert Counter(trace.read_text().splitlines()) == Counter(f"{w} {n}" for w in "abc" for n in range(5))


def test_the_feed_cut_into_batches_and_partitions(spark: Engine) -> None:
    job = ps.Job("cut")
    source, out = _ends(job)
    source >> job.task("count", ps.Count()) >> out
    result = spark.feed(job, {"in": [(n % 3, 0) for n in range(100)]}, batch=17, partitions=3)
    assert result.report.batches == 6
    assert {r.key: r.value for r in result["out"]} == {0: 34, 1: 33, 2: 33}


@dataclass(frozen=True)
class Reading:
    """A value of the user's own."""

    sensor: str
    degrees: float


def test_values_and_keys_of_the_users_own_classes(spark: Engine) -> None:
    job = ps.Job("objects")
    source, out = _ends(job)
    hottest = job.task("hottest", ps.Reduce(lambda a, b: a if a.degrees >= b.degrees else b))
    source >> job.task("key", lambda r: (r.value.sensor, r.value)) >> hottest >> out
    result = spark.feed(job, {"in": [Reading("x", 1.0), Reading("x", 3.0), Reading("y", 2.0)]})
    assert {r.key: r.value for r in result["out"]} == {"x": Reading("x", 3.0), "y": Reading("y", 2.0)}


def test_user_code_that_raises_is_named(spark: Engine) -> None:
    job = ps.Job("raises")
    source, out = _ends(job)
    source >> job.task("divide", lambda r: 10 / r.value) >> out
    with pytest.raises(ps.TaskError) as caught:
        spark.feed(job, {"in": [5, 0]})
    assert caught.value.job == "raises"
    assert caught.value.vertex == "divide"
    assert "value=0" in caught.value.record
    assert "ZeroDivisionError" in caught.value.cause
    assert spark.feed(job, {"in": [5]})["out"] == [ps.Record(None, 2.0)], "the session is still good"


def test_user_code_behind_a_keyed_edge_that_raises_is_named(engine: Engine) -> None:
    job = ps.Job("raises")
    source, out = _ends(job)
    source >> job.task("sum", ps.Sum()) >> job.task("divide", lambda r: 10 / r.value) >> out
    with pytest.raises(ps.TaskError, match="divide"):
        engine.feed(job, {"in": [("a", 5), ("a", -5)]})


def test_values_that_cannot_travel_are_named(engine: Engine) -> None:
    job = ps.Job("unpicklable")
    source, out = _ends(job)
    source >> job.task("open", lambda r: (1, threading.Lock())) >> job.task("last", ps.Reduce(max)) >> out
    with pytest.raises(ps.TaskError, match="last"):
        engine.feed(job, {"in": [5]})


class _Unprepared(ps.Task):
    def prepare(self, config: Any) -> None:
        raise OSError("no model")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        raise AssertionError("not prepared")


class _Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, record: ps.Record) -> Any:
        return record


@pytest.mark.parametrize("task", [_Unprepared(), _Locked()], ids=["prepare", "lock"])
def test_code_that_cannot_run_is_an_error_of_ours(task: Any, engine: Engine) -> None:
    job = ps.Job("cannot")
    source, out = _ends(job)
    source >> job.task("guilty", task) >> out
    with pytest.raises(ps.TaskError, match="'guilty'") as caught:
        engine.feed(job, {"in": [1]})
    assert len(str(caught.value).splitlines()) <= 3


def test_wrong_feeds_and_wrong_graphs(engine: Engine) -> None:
    job = ps.Job("wrong")
    source, out = _ends(job)
    with pytest.raises(ps.GraphError):
        engine.feed(job, {"in": []})
    source >> job.task("same", lambda r: r) >> out
    with pytest.raises(ps.SettingError, match="no source 'lines'"):
        engine.feed(job, {"lines": []})
    assert engine.feed(job)["out"] == []
