"""Instances of a vertex: each has an object of its own, and records reach the ones they should."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.engine.continuation import change_buckets
from penstock.errors import TaskError


class Member(ps.Task):
    """Says which instance it is, and how many records it has had."""

    prepared: int = 0

    def prepare(self, config: Any) -> None:
        self.prepared += 1
        self.had: list[Any] = []

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs["in"]:
            self.had.append(record.value)
            outputs.emit(ps.ctx.instance, (record.value, len(self.had), self.prepared))


def _run(job: ps.Job, folder: Path, items: list[Any], buckets: int = 2) -> LocalRun:
    return LocalRun(job, folder, buckets=buckets).drain(items)


@pytest.mark.parametrize("buckets", [1, 2, 5])
def test_a_broadcast_record_reaches_every_instance_once(tmp_path: Path, buckets: int) -> None:
    job = ps.Job("broadcast")
    task = job.task("task", Member(), parallelism=3)
    job.connect(job.source("in", ps.MemorySource()), task, by=ps.BROADCAST)
    task >> job.sink("out", ps.MemorySink())
    run = _run(job, tmp_path, ["a", "b"], buckets)
    expected = Counter((n, (value, had, 1)) for n in range(3) for had, value in ((1, "a"), (2, "b")))
    assert run.out("out") == expected
    assert run.summaries[0].records_in[task.index] == 6


def test_without_a_number_there_is_an_instance_for_each_bucket(tmp_path: Path) -> None:
    job = ps.Job("broadcast")
    task = job.task("task", Member())
    job.connect(job.source("in", ps.MemorySource()), task, by=ps.BROADCAST)
    task >> job.sink("out", ps.MemorySink())
    assert _run(job, tmp_path, ["a"], 4).out("out") == Counter((n, ("a", 1, 1)) for n in range(4))


@pytest.mark.parametrize("buckets", [1, 2, 5])
def test_records_are_dealt_out_in_turn(tmp_path: Path, buckets: int) -> None:
    job = ps.Job("turns")
    (
        job.source("in", ps.MemorySource())
        >> job.task("task", Member(), parallelism=3)
        >> job.sink("out", ps.MemorySink())
    )
    run = _run(job, tmp_path, list(range(10)), buckets)
    found = [(record.key, record.value[0]) for record in run.sinks["out"].records]
    assert sorted(value for _, value in found) == list(range(10))
    assert sorted(Counter(instance for instance, _ in found).values()) == [3, 3, 4]
    run.drain([10, 11])
    counts = Counter(record.key for record in run.sinks["out"].records)
    assert set(counts) == {0, 1, 2}


def test_equal_numbers_are_chained_and_stay_with_their_instance(tmp_path: Path) -> None:
    job = ps.Job("chained")
    first = job.task("first", lambda r: (ps.ctx.instance, r.value), parallelism=3)
    second = job.task("second", lambda r: (r.key, ps.ctx.instance), parallelism=3)
    job.source("in", ps.MemorySource()) >> first >> second >> job.sink("out", ps.MemorySink())
    run = _run(job, tmp_path, list(range(9)))
    assert run.out("out") == {(n, n): 3 for n in range(3)}
    assert len(run.summaries) == 1, "no other batch was needed"


def test_from_behind_the_shuffle_records_are_dealt_out_in_the_next_batch(tmp_path: Path) -> None:
    job = ps.Job("behind")
    count = job.task("count", ps.Count())
    spread = job.task("spread", lambda r: (r.key, ps.ctx.instance), parallelism=2)
    job.source("in", ps.MemorySource()) >> count >> spread >> job.sink("out", ps.MemorySink())
    run = _run(job, tmp_path, [(n, 1) for n in range(8)])
    assert sorted(record.key for record in run.sinks["out"].records) == list(range(8))
    assert len({record.value for record in run.sinks["out"].records}) == 2
    assert len(run.summaries) == 2


def test_a_task_that_does_not_say_has_as_many_as_the_job_says(tmp_path: Path) -> None:
    """Also for records whose keys nobody could deal out by: their keys do not matter."""
    job = ps.Job("default", parallelism=4)
    first = job.task("first", lambda r: ps.Record([r.value], r.value), parallelism=2)
    second = job.task("second", lambda r: ps.Record(None, (ps.ctx.instance, r.value)))
    job.source("in", ps.MemorySource()) >> first >> second >> job.sink("out", ps.MemorySink())
    found = [record.value for record in _run(job, tmp_path, list(range(16)), 4).sinks["out"].records]
    assert sorted(value for _, value in found) == list(range(16))
    assert set(Counter(instance for instance, _ in found)) == {0, 1, 2, 3}


def test_keys_have_their_instance(tmp_path: Path) -> None:
    job = ps.Job("by-key")
    task = job.task("task", lambda r: (r.key, ps.ctx.instance), parallelism=3)
    job.connect(job.source("in", ps.MemorySource()), task, by=ps.SAME_KEY)
    task >> job.sink("out", ps.MemorySink())
    run = _run(job, tmp_path, [(n % 7, n) for n in range(70)])
    found: dict[Any, set[int]] = {}
    for record in run.sinks["out"].records:
        found.setdefault(record.key, set()).add(record.value)
    assert len(found) == 7
    assert all(len(instances) == 1 for instances in found.values())
    assert len(set.union(*found.values())) == 3


def test_what_is_broadcast_meets_what_is_dealt_out(tmp_path: Path) -> None:
    """The usual reason for it: rules that every instance has to know before it works on data."""

    class Apply(ps.Task):
        inputs = ("data", "rules")

        def prepare(self, config: Any) -> None:
            self.factor = 1

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs["rules"]:
                self.factor = record.value
            for record in inputs["data"]:
                outputs.emit(None, record.value * self.factor)

    job = ps.Job("rules")
    data, rules = job.source("data", ps.MemorySource()), job.source("rules", ps.MemorySource())
    apply = job.task("apply", Apply(), parallelism=3)
    data >> apply["data"]
    job.connect(rules, apply["rules"], by=ps.BROADCAST)
    apply >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    run.step([10], source="rules")
    run.step(list(range(30)), source="data")
    assert run.out("out") == Counter((None, 10 * n) for n in range(30))


def test_a_loop_through_a_broadcast_ends_at_its_limit(tmp_path: Path) -> None:
    job = ps.Job("loop", max_iterations=2)
    task = job.task("task", lambda r: r.value + 1, parallelism=2)
    job.source("in", ps.MemorySource()) >> task >> job.sink("out", ps.MemorySink())
    job.connect(task, task, by=ps.BROADCAST)
    run = _run(job, tmp_path, [0])
    assert run.out("out") == {(None, 1): 1, (None, 2): 2, (None, 3): 4}
    assert len(run.discarded.records) == 4


def test_windows_behind_dealt_out_records_are_exact(tmp_path: Path) -> None:
    job = ps.Job("windows")
    spread = job.task("spread", lambda r: r, parallelism=3)
    total = job.task("total", ps.Sum(), window=ps.TimeWindow(10))
    job.source("in", ps.MemorySource()) >> spread >> total >> job.sink("out", ps.MemorySink())
    feed = [ps.Record("k", n, float(n)) for n in range(40)]
    result = ps.testing.run(job, {"in": feed}, partitions=2, batch=7, engine="local")
    assert Counter(record.value for record in result["out"]) == Counter(
        sum(range(start, start + 10)) for start in range(0, 40, 10)
    )
    assert result.late == []


def test_what_an_instance_raises_in_prepare_names_its_vertex(tmp_path: Path) -> None:
    class Bad(ps.Task):
        def prepare(self, config: Any) -> None:
            raise OSError("no model")

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None: ...

    job = ps.Job("bad")
    (
        job.source("in", ps.MemorySource())
        >> job.task("task", Bad(), parallelism=2)
        >> job.sink("out", ps.MemorySink())
    )
    with pytest.raises(TaskError, match=r"vertex 'task'.*no model"):
        _run(job, tmp_path, [1])


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2), (3, 1)])
def test_records_under_way_find_their_instance_among_other_buckets(
    tmp_path: Path, before: int, after: int
) -> None:
    def job() -> ps.Job:
        job = ps.Job("moving")
        count = job.task("count", ps.Count())
        spread = job.task("spread", lambda r: (r.key, ps.ctx.instance), parallelism=3)
        job.source("in", ps.MemorySource()) >> count >> spread >> job.sink("out", ps.MemorySink())
        return job

    expected = LocalRun(job(), tmp_path / "as it was", buckets=before)
    expected.drain([(n, 1) for n in range(12)])
    run = LocalRun(job(), tmp_path / "moved", buckets=before)
    run.step([(n, 1) for n in range(12)])
    assert run.last is not None
    assert run.feedback
    change_buckets(run.blueprint.folders, run.last, after)
    going_on = LocalRun(job(), tmp_path / "moved", buckets=after)
    going_on.step()
    assert going_on.out("out") == expected.out("out"), "each record at the instance it was dealt to"
