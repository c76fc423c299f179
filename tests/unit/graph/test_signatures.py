"""Methods that a job could not call are found by validation, and named with their vertex."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps


class _NoValues(ps.StatefulTask):
    def update(self, key: Any, state: Any) -> Any:  # type: ignore[override]
        return state, [key]


class _NoSelf(ps.StatefulTask):
    def update(key, values, state):  # type: ignore[no-untyped-def, override]  # noqa: N805
        return state, [values]


class _Async(ps.StatefulTask):
    async def update(self, key: Any, values: list[Any], state: Any) -> Any:  # type: ignore[override]
        return state, [values]


class _Nothing(ps.StatefulTask):
    update = None  # type: ignore[assignment]


class _OneInput(ps.Task):
    def execute(self, inputs: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class _NoConfig(ps.Task):
    def prepare(self) -> None:  # type: ignore[override]
        raise NotImplementedError

    def execute(self, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError


class _Merging(ps.CombiningTask):
    def lift(self) -> Any:  # type: ignore[override]
        return 1

    def merge(self, left: Any, right: Any, more: Any) -> Any:  # type: ignore[override]
        return left

    def result(self, state: Any, *more: Any) -> Any:
        return state


def _job(task: Any) -> ps.Job:
    job = ps.Job("calls")
    job.source("in", ps.MemorySource()) >> job.task("total", task) >> job.sink("out", ps.MemorySink())
    return job


@pytest.mark.parametrize(
    ("task", "reasons"),
    [
        (
            _NoValues(),
            [
                "_NoValues.update(self, key, state) is called with (key, values, state):"
                " it must be update(self, key, values, state)"
            ],
        ),
        (_NoSelf(), ["_NoSelf.update(key, values, state) is called with (key, values, state)"]),
        (_Async(), ["_Async.update must be a plain function, not an async one"]),
        (_Nothing(), ["update of _Nothing must be a function, not None"]),
        (_OneInput(), ["is called with (inputs, outputs): it must be execute(self, inputs, outputs)"]),
        (_NoConfig(), ["is called with (config): it must be prepare(self, config)"]),
        (_Merging(), ["it must be lift(self, value)", "it must be merge(self, left, right)"]),
        (ps.Reduce(lambda left: left), ["Reduce.function(left) is called with (left, right)"]),  # type: ignore[arg-type, misc]
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, list) else "",
)
def test_what_cannot_be_called_is_told_with_its_vertex(task: Any, reasons: list[str]) -> None:
    with pytest.raises(ps.GraphError) as wrong:
        _job(task).validate()
    problems = wrong.value.problems
    assert {(problem.code, problem.vertex) for problem in problems} == {("bad-task", "total")}
    assert len(problems) == len(reasons)
    for problem, reason in zip(problems, reasons, strict=True):
        assert problem.message.startswith("task 'total': ")
        assert reason in problem.message


@pytest.mark.parametrize(
    "task",
    [
        lambda r, more=1: (r, more),
        print,
        ps.Reduce(max),
        ps.Reduce(operator.add),
        ps.Count(),
        ps.TopN(3, of="score"),
    ],
)
def test_what_can_be_called_is_left_alone(task: Callable[..., Any]) -> None:
    _job(task).validate()
