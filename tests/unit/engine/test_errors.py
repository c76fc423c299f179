"""Records that user code cannot work on: they end the job, are tried again, or go into ``errors``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from engine_support import LaneSource, LocalRun

import penstock as ps


def _ends(job: ps.Job) -> tuple[ps.Vertex, ps.Vertex]:
    return job.source("in", ps.MemorySource()), job.sink("out", ps.MemorySink())


def _line(task: Any, **options: Any) -> ps.Job:
    job = ps.Job("line", **options)
    source, out = _ends(job)
    source >> job.task("work", task) >> out
    return job


def _failed(run: LocalRun) -> list[ps.Failed]:
    return [ps.Failed.from_record(record) for record in run.sides["errors"].records]


def _half(record: ps.Record) -> Iterator[Any]:
    yield record.value
    yield 1 // record.value


class _Ports(ps.Task):
    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        [record] = inputs.get()
        outputs.emit(None, record.value)
        outputs.emit(None, 1 // record.value)


class _Totals(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        state = state or []
        for value in values:
            state.append(value)
            1 // value
        return state, [(key, tuple(state))]


@pytest.mark.parametrize("task", [_half, _Ports(), lambda r: [r.value, 1 // r.value]])
def test_a_bad_record_is_left_out_with_all_it_has_emitted(tmp_path: Path, task: Any) -> None:
    run = LocalRun(_line(task, on_error="discard"), tmp_path)
    run.step([2, 0, 1, 0, 3])
    assert sorted(r.value for r in run.sinks["out"].records) == [0, 0, 1, 1, 2, 3]
    assert [(f.vertex, f.error, f.value) for f in _failed(run)] == [("work", "ZeroDivisionError", 0)] * 2
    assert run.summaries[0].side == {"errors": {"work": 2}}


def test_a_task_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    job = ps.Job("own")
    source, out = _ends(job)
    (
        source
        >> job.task("lenient", lambda r: 10 // r.value, on_error="discard")
        >> job.task("strict", lambda r: 10 // (r.value - 5))
        >> out
    )
    run = LocalRun(job, tmp_path)
    run.step([0, 1])
    assert run.out("out") == {(None, 2): 1}
    with pytest.raises(ps.TaskError, match="strict"):
        run.step([2])


def test_retrying_calls_again_and_then_fails_or_discards(tmp_path: Path) -> None:
    calls: Counter[int] = Counter()

    def flaky(record: ps.Record) -> int:
        calls[record.value] += 1
        if calls[record.value] < record.value:
            raise OSError(f"call {calls[record.value]}")
        return int(record.value)

    retry = ps.Retry(3, delay=0, then="discard")
    run = LocalRun(_line(flaky, on_error=retry), tmp_path / "discard")
    run.step([1, 3, 4, 9])
    assert run.out("out") == {(None, 1): 1, (None, 3): 1, (None, 4): 1}
    assert (calls[9], [(f.value, f.message) for f in _failed(run)]) == (4, [(9, "call 4")])
    calls.clear()
    with pytest.raises(ps.TaskError, match="call 4"):
        LocalRun(_line(flaky, on_error=ps.Retry(3, delay=0)), tmp_path / "fail").step([9])


def test_only_the_bad_values_of_a_key_are_left_out_and_the_state_does_not_see_them(tmp_path: Path) -> None:
    run = LocalRun(_line(_Totals(), on_error="discard"), tmp_path)
    run.step([("a", 1), ("a", 0), ("a", 2), ("b", 3)])
    run.step([("a", 4)])
    assert run.sinks["out"].records[-1].value == (1, 2, 4)
    assert [(f.key, f.value) for f in _failed(run)] == [("a", [0])]


class _Consumes(ps.StatefulTask):
    """Takes the values out of their list, and changes them, before it finds out that one is bad."""

    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        total = state or 0
        while values:
            value = values.pop(0)
            value[0] *= 10
            if value[0] < 0:
                raise ValueError("negative")
            total += value[0]
        return total, [(key, total)]


@pytest.mark.parametrize("policy", ["discard", ps.Retry(2, delay=0, then="discard")])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_values_that_update_has_taken_out_of_their_list_are_not_lost(
    tmp_path: Path, policy: Any, cut: int
) -> None:
    run = LocalRun(_line(_Consumes(), on_error=policy), tmp_path)
    items = [("a", [1]), ("a", [-1]), ("a", [2]), ("a", [5])]
    for start in range(0, len(items), cut):
        run.step(items[start : start + cut])
    assert run.sinks["out"].records[-1].value == 80
    assert [(f.key, f.value) for f in _failed(run)] == [("a", [[-1]])]


def test_a_window_that_update_has_emptied_is_in_the_errors_as_it_was(tmp_path: Path) -> None:
    class Empties(ps.StatefulTask):
        def update(self, key: Any, values: Any, state: Any) -> Any:
            calls.append((values.start, values.end, list(values)))
            values.clear()
            raise ValueError("never")

    calls: list[Any] = []
    job = ps.Job("line", on_error=ps.Retry(1, delay=0, then="discard"))
    source, out = _ends(job)
    source >> job.task("work", Empties(), window=ps.CountWindow(2)) >> out
    run = LocalRun(job, tmp_path)
    run.step([("a", 1), ("a", 2)])
    assert calls == [(0, 2, [1, 2])] * 2
    assert [f.value for f in _failed(run)] == [[1, 2]]


class _Raising:
    """A key whose own method fails."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Raising)

    def __hash__(self) -> int:
        return 1

    def __penstock_key__(self) -> str:
        raise OverflowError("no key")


@pytest.mark.parametrize("task", [ps.Count(), _Totals()])
@pytest.mark.parametrize("key", [pd.NaT, float("nan"), _Raising()], ids=["NaT", "NaN", "raising"])
def test_a_key_without_a_place_goes_into_the_errors_whatever_it_raises(
    tmp_path: Path, key: Any, task: Any
) -> None:
    with pytest.raises(ps.TaskError, match="work"):
        LocalRun(_line(task), tmp_path / "fail").step([(key, 1)])
    run = LocalRun(_line(task, on_error="discard"), tmp_path / "discard")
    run.step([(key, 1), ("a", 1)])
    assert [record.key for record in run.sinks["out"].records] == ["a"]
    assert len(_failed(run)) == 1


def test_nor_does_a_record_that_is_dealt_out_by_such_a_key_end_the_job(tmp_path: Path) -> None:
    job = ps.Job("line", on_error="discard")
    source, out = _ends(job)
    work = job.task("work", lambda r: r, parallelism=2)
    job.connect(source, work, by=ps.SAME_KEY)
    work >> out
    run = LocalRun(job, tmp_path)
    run.step([(pd.NaT, 1), ("a", 1)])
    assert run.out("out") == {("a", 1): 1}
    assert len(_failed(run)) == 1


@pytest.mark.parametrize(
    ("task", "items", "left"),
    [
        (ps.Sum(), [("a", 1), ("a", "x"), ("a", 2)], {("a", 3): 1}),
        (ps.Count(), [("a", 1), ([], 1), ("a", 2)], {("a", 2): 1}),
        (ps.Count(), [("a", 1), (object(), 1)], {("a", 1): 1}),
        (_Totals(), [("a", 1), ({}, 1)], {("a", (1,)): 1}),
        (ps.Reduce(lambda a, b: a + b), [("a", 1), ("a", None)], {("a", 1): 1}),
    ],
)
def test_keys_and_values_that_cannot_be_aggregated(
    tmp_path: Path, task: Any, items: list[Any], left: dict[Any, int]
) -> None:
    run = LocalRun(_line(task, on_error="discard"), tmp_path)
    run.step(items)
    assert run.out("out") == left
    assert len(_failed(run)) == 1


def test_errors_can_be_connected(tmp_path: Path) -> None:
    job = _line(lambda r: 1 // r.value, on_error="discard")
    count = job.task("kinds", lambda r: (r.value["error"], r.value["value"]))
    job.vertex("work")["errors"] >> count >> job.task("count", ps.Count()) >> job.sink("bad", ps.MemorySink())
    run = LocalRun(job, tmp_path).drain([1, 0, "x", 0])
    assert run.out("bad") == {("ZeroDivisionError", 2): 1, ("TypeError", 1): 1}
    assert len(_failed(run)) == 3


def test_a_port_of_that_name_is_the_task_s_own(tmp_path: Path) -> None:
    class Own(ps.Task):
        outputs = ("out", "errors")

        def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
            for record in inputs.get():
                outputs.emit(None, 1 // record.value, port="out")
                outputs.emit(None, "mine", port="errors")

    job = ps.Job("own", on_error="discard")
    source, out = _ends(job)
    own = job.task("own", Own())
    source >> own
    own["out"] >> out
    own["errors"] >> job.sink("mine", ps.MemorySink())
    run = LocalRun(job, tmp_path)
    run.step([1, 0])
    assert run.out("mine") == {(None, "mine"): 1}
    assert len(_failed(run)) == 1


def test_a_batch_that_exits_is_a_failure_whatever_the_policy(tmp_path: Path) -> None:
    def leave(record: ps.Record) -> None:
        raise SystemExit(3)

    with pytest.raises(ps.TaskError, match="SystemExit"):
        LocalRun(_line(leave, on_error="discard"), tmp_path).step([1])


class _Choosy(LaneSource):
    def read(self, split: Any) -> Iterator[Any]:
        yield from super().read(split)
        yield ps.Rejected([("???", "line 3 is not JSON")])

    def records_in(self, split: Any) -> int:
        return super().records_in(split) + 1


def test_what_a_source_cannot_read(tmp_path: Path) -> None:
    for policy in ("discard", "fail"):
        job = ps.Job("choosy", on_error=policy)
        source, out = _ends(job)
        source >> out
        run = LocalRun(job, tmp_path / policy, sources={"in": _Choosy()})
        if policy == "discard":
            run.step([1])
            assert run.out("out") == {(None, 1): 1}
            assert [(f.vertex, f.value, f.message) for f in _failed(run)] == [
                ("in", "???", "line 3 is not JSON")
            ]
        else:
            with pytest.raises(ps.ConnectorError, match="line 3"):
                run.step([1])


class _Hopeless(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        raise ValueError("never")


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (_Hopeless(), {}),
        (lambda r: 1 // 0, {}),
        (lambda r: {"n": "no number"}, {"schema": "n long"}),
    ],
)
def test_what_fails_again_and_again_goes_round_no_more_often_than_others(
    tmp_path: Path, task: Any, options: dict[str, Any]
) -> None:
    job = ps.Job("again", on_error="discard", max_iterations=2)
    source, out = _ends(job)
    work = job.task("work", task, **options)
    source >> work >> out
    work["errors"] >> job.task("back", lambda r: ("k", 1)) >> work
    run = LocalRun(job, tmp_path).drain([("k", 1)])
    assert len(_failed(run)) == 3
    assert [entry.value["count"] for entry in run.discarded.records] == [3]
