"""What user code returns, read as records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.blueprint import make_blueprint
from penstock.engine.execution.vertex_step import compile_step, emit, raise_failure
from penstock.record import Record

INCOMING = Record("key", "value", 7.0)

CASES: list[tuple[Any, list[Record]]] = [
    (None, []),
    ([], []),
    ("word", [Record("key", "word", 7.0)]),
    (("k", 1), [Record("k", 1, 7.0)]),
    ((1, 2, 3), [Record("key", (1, 2, 3), 7.0)]),
    (Record("k", 1, 2.0), [Record("k", 1, 2.0)]),
    ([1, ("k", 2), Record("r", 3)], [Record("key", 1, 7.0), Record("k", 2, 7.0), Record("r", 3)]),
    ([[1, 2]], [Record("key", [1, 2], 7.0)]),
    ({"a": 1}, [Record("key", {"a": 1}, 7.0)]),
    (0, [Record("key", 0, 7.0)]),
    (False, [Record("key", False, 7.0)]),
    ("", [Record("key", "", 7.0)]),
]


def _applied(function: Callable[[Record], Any], *records: Record) -> Any:
    """Return what the step of a function emits."""
    job = ps.Job("one")
    job.source("in", ps.MemorySource()) >> job.task("f", function) >> job.sink("out", ps.MemorySink())
    step = compile_step(make_blueprint(job, folder=Path("unused"), buckets=1, sides={}).vertices[1])
    assert step is not None
    [(_, found)] = step("in", list(records), raise_failure(1))
    return found


@pytest.mark.parametrize(("result", "expected"), CASES, ids=lambda case: repr(case)[:40])
def test_function_results(result: Any, expected: list[Record]) -> None:
    assert _applied(lambda record: result, INCOMING) == expected
    collected: list[Record] = []
    emit(result, INCOMING.key, INCOMING.ts, collected.append)
    assert collected == expected


def test_a_generator_is_many() -> None:
    def words(record: Record) -> Any:
        for word in record.value.split():
            yield word, 1

    assert _applied(words, Record(None, "a b")) == [Record("a", 1), Record("b", 1)]
