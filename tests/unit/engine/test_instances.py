"""Instances of a vertex: each has an object of its own, and records reach the ones they should."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun

import penstock as ps
from penstock.engine.driver.bucket_migration import change_buckets
from penstock.engine.storage.ledger import Ledger
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


def test_what_is_broadcast_meets_what_is_chained_to_its_target(tmp_path: Path) -> None:
    class Told(ps.Task):
        inputs = ("data", "rules")

        def prepare(self, config: Any) -> None:
            self.rule: Any = None

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs["rules"]:
                self.rule = record.value
            for record in inputs["data"]:
                outputs.emit(ps.ctx.instance, (record.value, self.rule))

    job = ps.Job("rules", parallelism=3)
    data, rules = job.source("data", ps.MemorySource()), job.source("rules", ps.MemorySource())
    first = job.task("first", lambda r: r, parallelism=3)
    told = job.task("told", Told(), parallelism=3)
    data >> first >> told["data"]
    job.connect(rules, told["rules"], by=ps.BROADCAST)
    told >> job.sink("out", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    run.step(["R"], source="rules")
    run.step(list(range(6)), source="data")
    found = run.sinks["out"].records
    assert sorted(record.value for record in found) == [(n, "R") for n in range(6)]
    assert Counter(record.key for record in found) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("buckets", [1, 2, 8])
@pytest.mark.parametrize("sender", ["source", "windows", "task", "stateful", "side port"])
@pytest.mark.parametrize("default", [None, 4])
def test_there_are_as_many_instances_as_said_whatever_the_sender_has(
    tmp_path: Path, default: int | None, sender: str, buckets: int
) -> None:
    job = ps.Job("real", parallelism=default)
    window = ps.CountWindow(1) if sender == "windows" else None
    before: ps.Vertex | ps.PortRef = job.source("in", ps.MemorySource(), window=window)
    if sender == "task":
        before = before >> job.task("before", lambda r: r)
    elif sender == "stateful":
        before = before >> job.task("before", ps.Count())
    elif sender == "side port":
        picky = job.task("picky", lambda r: r, parallelism=4, input_schema="n long")
        before >> picky >> job.sink("fits", ps.MemorySink())
        before = picky["errors"]
    task = job.task("task", Member(), parallelism=4)
    before >> task >> job.sink("out", ps.MemorySink())
    found = _run(job, tmp_path, [(n, 1) for n in range(40)], buckets).sinks["out"].records
    assert sorted({record.key for record in found}) == [0, 1, 2, 3]
    assert len(found) == 40
    counts = Counter(record.key for record in found)
    assert max(counts.values()) - min(counts.values()) <= buckets, "one turn more for each bucket that sends"
    for instance, number in counts.items():
        had = sorted(record.value[1] for record in found if record.key == instance)
        assert had == list(range(1, number + 1)), "an instance is one object"


def test_a_job_s_number_alone_deals_nothing_out(tmp_path: Path) -> None:
    job = ps.Job("chained", parallelism=4)
    count = job.task("count", ps.Count())
    job.source("in", ps.MemorySource()) >> job.task("task", lambda r: r) >> count
    count >> job.sink("out", ps.MemorySink())
    run = _run(job, tmp_path, [("a", 1), ("a", 1)])
    assert run.out("out") == {("a", 2): 1}
    assert len(run.summaries) == 1
    assert run.blueprint.instances == {}


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


class Echo(ps.StatefulTask):
    """Emits each value, and remembers nothing."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        return None, [(key, value) for value in values]


def _windows_behind(relays: str, *idle: float) -> ps.Job:
    """Return a job with windows behind tasks that run behind the shuffle."""
    job = ps.Job("waiting")
    before = job.source("in", ps.MemorySource())
    for number, relay in enumerate(relays.split()):
        operator = Echo() if relay == "stateful" else lambda r: r
        parallelism = 2 + number if relay == "dealt" else None
        before = before >> job.task(f"relay{number}", operator, parallelism=parallelism)
    for seconds in idle:
        window = job.task(f"window{seconds:g}", ps.Count(), window=ps.TimeWindow(10, idle=seconds))
        before >> window >> job.sink(f"out{seconds:g}", ps.MemorySink())
    return job


RELAYS = ["dealt", "stateful", "dealt dealt", "dealt stateful dealt"]


def _drained(run: LocalRun, now: float, **lanes: float) -> LocalRun:
    """Run a batch with a record of a time for each lane, and what follows from it at the same moment."""
    run.run({("in", lane): [ps.Record(lane, 1, ts)] for lane, ts in lanes.items()}, now=now)
    batch = -1
    while run.batch != batch:
        batch = run.batch
        run.run({}, now=now)
    return run


@pytest.mark.parametrize("relays", RELAYS)
def test_a_silent_lane_holds_windows_behind_other_tasks_open_for_a_while_only(
    tmp_path: Path, relays: str
) -> None:
    run = LocalRun(_windows_behind(relays, 30), tmp_path)
    _drained(run, 100.0, a=1.0, b=1.0)
    _drained(run, 120.0, a=15.0)
    assert run.out("out30") == {}, "lane b may have something for the window"
    _drained(run, 131.0, a=16.0)
    assert run.out("out30") == {("a", 1): 1, ("b", 1): 1}
    _drained(run, 140.0, b=2.0)
    assert [record.value["value"] for record in run.sides["late"].records] == [1]


@pytest.mark.parametrize("relays", RELAYS)
def test_each_window_waits_for_a_silent_lane_as_long_as_it_says(tmp_path: Path, relays: str) -> None:
    run = LocalRun(_windows_behind(relays, 5, 30), tmp_path)
    _drained(run, 100.0, a=1.0, b=1.0)
    _drained(run, 106.0, a=15.0)
    closed = {("a", 1): 1, ("b", 1): 1}
    assert (run.out("out5"), run.out("out30")) == (closed, {})
    _drained(run, 107.0, b=2.0)
    assert [record.value["vertex"] for record in run.sides["late"].records] == ["window5"]
    _drained(run, 108.0, a=16.0, b=12.0)
    assert run.out("out30") == {("a", 1): 1, ("b", 2): 1}


@pytest.mark.parametrize("relays", RELAYS)
def test_windows_behind_other_tasks_close_when_all_lanes_are_silent(tmp_path: Path, relays: str) -> None:
    """In batches without records, each of which takes time one task further, and in no more of them."""
    run = LocalRun(_windows_behind(relays, 30), tmp_path)
    _drained(run, 100.0, a=15.0, b=1.0)
    before = _drained(run, 129.0).batch
    assert run.out("out30") == {}
    _drained(run, 131.0)
    assert run.out("out30") == {("b", 1): 1}
    assert run.batch - before == 1 + len(relays.split())
    assert run.times.earliest == {"window30": 20.0}
    assert _drained(run, 1000.0).batch == run.batch, "nothing can close the window of the newest record"


def test_time_goes_on_after_a_batch_of_a_version_without_relays(tmp_path: Path) -> None:
    run = LocalRun(_windows_behind("dealt", 30), tmp_path)
    _drained(run, 100.0, a=1.0, b=1.0)
    assert run.last is not None
    marks = {**run.times.marks, "relay0": 1.0}
    times = {name: value for name, value in run.last.times.items() if name != "relays"} | {"marks": marks}
    Ledger(run.blueprint.folders.ledger).replace(replace(run.last, times=times))
    run = LocalRun(_windows_behind("dealt", 30), tmp_path)
    _drained(run, 110.0, a=15.0, b=15.0)
    assert run.out("out30") == {("a", 1): 1, ("b", 1): 1}


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


def test_records_under_way_find_an_instance_when_there_are_fewer(tmp_path: Path) -> None:
    def job(instances: int) -> ps.Job:
        job = ps.Job("fewer")
        count = job.task("count", ps.Count())
        spread = job.task("spread", lambda r: (r.key, ps.ctx.instance), parallelism=instances)
        job.source("in", ps.MemorySource()) >> count >> spread >> job.sink("out", ps.MemorySink())
        return job

    LocalRun(job(5), tmp_path).step([(n, 1) for n in range(20)])
    run = LocalRun(job(2), tmp_path)
    run.step()
    found = run.sinks["out"].records
    assert sorted(record.key for record in found) == list(range(20))
    assert {record.value for record in found} == {0, 1}
