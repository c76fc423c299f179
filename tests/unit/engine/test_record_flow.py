"""The engine's two halves on small jobs, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from engine_support import LocalRun, records

import penstock as ps


def _ends(job: ps.Job) -> tuple[ps.Vertex, ps.Vertex]:
    return job.source("in", ps.MemorySource()), job.sink("out", ps.MemorySink())


def test_word_count(tmp_path: Path) -> None:
    job = ps.Job("words")
    source, out = _ends(job)
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    source >> split >> job.task("count", ps.Count()) >> out
    run = LocalRun(job, tmp_path)
    run.step(["a b", "b"])
    assert run.out("out") == records(("a", 1), ("b", 2))
    run.step(["b c"])
    assert run.out("out") == records(("a", 1), ("b", 2), ("b", 3), ("c", 1))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_self_loop(tmp_path: Path, limit: int) -> None:
    job = ps.Job("self", max_iterations=limit)
    source, out = _ends(job)
    add = job.task("add", lambda r: r.value + 1)
    source >> add >> add
    add >> out
    run = LocalRun(job, tmp_path).drain([10])
    assert run.out("out") == records(*((None, 11 + n) for n in range(limit + 1)))
    [entry] = [ps.Discarded.from_record(r) for r in run.discarded.records]
    assert (entry.vertex, entry.cycle, entry.count, entry.record.value) == (
        "add",
        ("add",),
        limit + 1,
        11 + limit,
    )


def test_an_entry_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    job = ps.Job("own", max_iterations=1)
    source, out = _ends(job)
    add = job.task("add", lambda r: r.value + 1, max_iterations=4)
    source >> add >> add
    add >> out
    assert len(LocalRun(job, tmp_path).drain([0]).sinks["out"].records) == 5


def test_cycles_with_one_entry_share_a_counter_and_others_do_not(tmp_path: Path) -> None:
    job = ps.Job("shared", max_iterations=2)
    source, out = _ends(job)
    a = job.task("a", lambda r: r.value + "a")
    b = job.task("b", lambda r: r.value + "b")
    c = job.task("c", lambda r: r.value + "c")
    source >> a >> [b, c]
    b >> a
    c >> a
    a >> out
    run = LocalRun(job, tmp_path).drain([""])
    # One way in, then two ways back each time: 1 + 2 + 4 come by a, and 8 are discarded.
    assert sum(run.out("out").values()) == 7
    assert len(run.discarded.records) == 8
    assert {r.value["count"] for r in run.discarded.records} == {3}

    nested = ps.Job("nested", max_iterations=1)
    source, out = _ends(nested)
    outer = nested.task("outer", lambda r: r.value + "o")
    inner = nested.task("inner", lambda r: r.value + "i")
    source >> outer >> inner >> inner
    inner >> outer
    inner >> out
    run = LocalRun(nested, tmp_path / "nested").drain([""])
    expected = {"oi", "oii", "oioi", "oiioi", "oioii"}
    assert {value for _, value in run.out("out")} == expected, "the inner count is not reset by the outer"


def test_records_at_different_depths_of_a_loop_are_not_mixed(tmp_path: Path) -> None:
    """New records and returning ones meet in a keyed task; each keeps its own count."""

    class Pass(ps.StatefulTask):
        def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
            return (state or 0) + len(values), [(key, value + 1) for value in values]

    job = ps.Job("depths", max_iterations=2)
    source, out = _ends(job)
    keyed = job.task("keyed", Pass())
    source >> keyed >> keyed
    keyed >> out
    run = LocalRun(job, tmp_path)
    for _ in range(6):
        run.step([("k", 0)])
    while run.feedback:
        run.step()
    assert run.out("out") == {("k", 1): 6, ("k", 2): 6, ("k", 3): 6}
    assert [r.value["value"] for r in run.discarded.records] == [3] * 6


def test_values_behind_a_loop_are_counted_together(tmp_path: Path) -> None:
    job = ps.Job("behind", max_iterations=3)
    source, out = _ends(job)
    again = job.task("again", lambda r: r)
    source >> again >> again >> job.task("count", ps.Count()) >> out
    run = LocalRun(job, tmp_path)
    run.step([("k", 1)])
    assert run.out("out") == records(("k", 4))


def test_keyed_stages_in_a_row_and_stateless_keyed_tasks(tmp_path: Path) -> None:
    job = ps.Job("stages")
    source, out = _ends(job)
    other = job.sink("other", ps.MemorySink())
    total = job.task("total", ps.Sum())
    parity = job.task("parity", lambda r: (r.value % 2, r.value))
    largest = job.task("largest", ps.Reduce(max))
    source >> total >> parity
    job.connect(parity, largest)
    largest >> out
    total >> other
    plain = job.task("plain", lambda r: (r.key, -r.value))
    job.connect(total, plain, by=ps.SAME_KEY)
    plain >> other
    run = LocalRun(job, tmp_path, buckets=3).drain([("x", 1), ("x", 2), ("y", 5), ("z", 8)])
    assert run.out("out") == records((1, 5), (0, 8))
    expected = records(("x", 3), ("y", 5), ("z", 8), ("x", -3), ("y", -5), ("z", -8))
    assert run.out("other") == expected


def test_state_is_forgotten_and_stamps_are_the_latest(tmp_path: Path) -> None:
    class Pairs(ps.StatefulTask):
        def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
            held = [*(state or []), *values]
            return (None, [sum(held)]) if len(held) >= 2 else (held, [])

    job = ps.Job("pairs")
    source, out = _ends(job)
    source >> job.task("pairs", Pairs()) >> out
    run = LocalRun(job, tmp_path)
    run.step([ps.Record("k", 1, 3.0)])
    run.step([ps.Record("k", 2, 9.0), ps.Record("j", 5, 1.0)])
    run.step([ps.Record("k", 10, 1.0)])
    assert run.sinks["out"].records == [ps.Record("k", 3, 9.0)]


def test_counts_of_records(tmp_path: Path) -> None:
    job = ps.Job("words")
    source, out = _ends(job)
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    source >> split >> job.task("count", ps.Count()) >> out
    summary = LocalRun(job, tmp_path).step(["a b", "b"])
    names = [vertex.name for vertex in job.vertices]
    assert {names[i]: n for i, n in summary.records_in.items()} == {"split": 2, "count": 3, "out": 2}
    assert {names[i]: n for i, n in summary.records_out.items()} == {"in": 2, "split": 3, "count": 2}


class _Explosive:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class _Bad(ps.Task):
    def prepare(self, config: Any) -> None:
        raise OSError("no model")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        raise AssertionError("not prepared")


class _BadUpdate(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        return 5


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def _raise_unspeakable(record: ps.Record) -> None:
    raise _UnspeakableError


class _Keep(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        return values, []


class _BadPort(ps.Task):
    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        outputs.emit(1, 2, port="nowhere")


@pytest.mark.parametrize(
    ("task", "item", "cause"),
    [
        (lambda r: 1 / r.value, 0, "ZeroDivisionError"),
        (lambda r: r.missing, 0, "AttributeError"),
        (lambda r: 1 / 0, _Explosive(), "ZeroDivisionError"),
        (_BadUpdate(), ("k", 1), "must return"),
        (_BadPort(), 1, "no output port 'nowhere'"),
        (ps.Sum(), [("k", 1), ("k", "x")], "TypeError"),
        (ps.Count(), ([1], 1), "unhashable"),
        (ps.Count(), (object(), 1), "cannot be a key"),
        (lambda r: sys.exit(3), 1, "SystemExit"),
        (_raise_unspeakable, 1, "Unspeakable"),
        (_Keep(), ps.Record("k", 1, "noon"), "TypeError"),  # type: ignore[arg-type]
    ],
)
def test_user_code_that_fails_is_named(tmp_path: Path, task: Any, item: Any, cause: str) -> None:
    job = ps.Job("wrong")
    source, out = _ends(job)
    source >> job.task("guilty", task) >> out
    run = LocalRun(job, tmp_path)
    items = item if isinstance(item, list) else [item]
    with pytest.raises(ps.TaskError, match=cause) as caught:
        run.step(items)
    assert (caught.value.job, caught.value.vertex) == ("wrong", "guilty")
    assert "wrong" in str(caught.value)


def test_prepare_that_fails_is_named(tmp_path: Path) -> None:
    job = ps.Job("wrong")
    source, out = _ends(job)
    source >> job.task("guilty", _Bad()) >> out
    with pytest.raises(ps.TaskError, match="no model") as caught:
        LocalRun(job, tmp_path)
    assert caught.value.vertex == "guilty"


def test_a_combining_task_with_a_port_of_its_own(tmp_path: Path) -> None:
    class Named(ps.Sum):
        outputs = ("totals",)

    job = ps.Job("named")
    source, out = _ends(job)
    source >> job.task("sum", Named()) >> out
    assert LocalRun(job, tmp_path).drain([("k", 2), ("k", 3)]).out("out") == records(("k", 5))


def test_config_reaches_prepare(tmp_path: Path) -> None:
    class Scale(ps.Task):
        def prepare(self, config: Any) -> None:
            self.factor = config["factor"]

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs.get():
                outputs.emit(record.key, record.value * self.factor)

    job = ps.Job("scale")
    source, out = _ends(job)
    source >> job.task("scale", Scale(), config={"factor": 3}) >> out
    assert LocalRun(job, tmp_path).drain([2]).out("out") == records((None, 6))
