"""Vertices that work on columns: what is wrong with them is found while nothing runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.graph.samples import NoSink, NoSource

from penstock.graph.aggregations import Count
from penstock.graph.edge import SAME_KEY
from penstock.graph.job import Job
from penstock.graph.tasks import ArrowTask, DataFrameTask, Sql
from penstock.graph.validation import find_problems
from penstock.graph.windows import CountWindow


def problems(task: Any, *, schema: Any = "n long", **options: Any) -> list[tuple[str, str]]:
    job = Job("columns")
    source = job.source("rows", NoSource(), schema=schema)
    vertex = job.task("work", task, **options)
    for port in vertex.inputs or ("in",):
        source >> vertex[port]
    vertex >> job.sink("out", NoSink())
    return [(problem.code, problem.message) for problem in find_problems(job)]


class Filed(NoSource):
    def describe(self) -> dict[str, Any]:
        return {"schema": "n long"}


def nothing() -> None:
    return None


async def later(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    "task",
    [
        ArrowTask(lambda batch: batch),
        Sql("SELECT n + 1 AS n FROM input"),
        Sql("SELECT * FROM a UNION ALL SELECT * FROM b", inputs=("a", "b"), key="long"),
        DataFrameTask(lambda frame: frame),
        DataFrameTask(lambda a, b: a.union(b), inputs=("a", "b")),
    ],
)
def test_all_kinds_are_tasks(task: Any) -> None:
    assert problems(task) == []


@pytest.mark.parametrize(
    ("task", "code", "reason"),
    [
        (Sql(3), "bad-sql", "the query must be text, not 3"),  # type: ignore[arg-type]
        (Sql("  "), "bad-sql", "the query is empty"),
        (Sql("SELECT 1", inputs=("a-b",)), "bad-ports", "'a-b' is not valid as its name"),
        (Sql("SELECT 1", key="strin"), "bad-task", "key must be a type such as 'string' or 'long'"),
        (Sql("SELECT 1", inputs="ab"), "bad-ports", "inputs must be a tuple of port names"),
        (DataFrameTask(None), "bad-task", "DataFrameTask takes a function, not None"),  # type: ignore[arg-type]
        (DataFrameTask(lambda a: a, inputs=("a", "b")), "bad-task", "must take 2 arguments, one for each"),
        (ArrowTask(7), "bad-task", "ArrowTask takes a function, not 7"),  # type: ignore[arg-type]
        (ArrowTask(later), "bad-task", "ArrowTask takes a plain function, not an async one"),
        (ArrowTask(nothing), "bad-task", "must take one argument"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_run_is_named(task: Any, code: str, reason: str) -> None:
    found = problems(task)
    assert [name for name, _ in found if name != "unknown-port"] == [code]
    assert any(reason in message for _, message in found)


@pytest.mark.parametrize("task", [ArrowTask(lambda b: b), Sql("SELECT 1"), DataFrameTask(lambda f: f)])
def test_columns_need_a_schema(task: Any) -> None:
    (problem,) = problems(task, schema=None)
    assert problem[0] == "no-schema"
    assert "edge 'rows' -> 'work'" in problem[1]
    assert "declare schema= on 'rows' or input_schema= on 'work'" in problem[1]
    assert problems(task, schema=None, input_schema="n long") == []


def test_neighbours_that_know_their_columns_need_no_schema() -> None:
    job = Job("columns")
    first = job.source("rows", Filed()) >> job.task("first", Sql("SELECT 1 AS n"))
    first >> job.task("second", ArrowTask(lambda batch: batch)) >> job.sink("out", NoSink())
    assert find_problems(job) == []


def test_edges_into_one_port_must_agree() -> None:
    job = Job("columns")
    work = job.task("work", Sql("SELECT * FROM input"))
    job.source("a", NoSource(), schema="n int") >> work
    job.source("b", NoSource(), schema="n string") >> work
    work >> job.sink("out", NoSink())
    (problem,) = find_problems(job)
    assert problem.code == "schema-mismatch"
    assert "edge 'b' -> 'work'" in problem.message
    assert "field 'n' is string, not int" in problem.message


def test_spark_does_not_go_round_in_loops() -> None:
    job = Job("round", max_iterations=3)
    rows = job.source("rows", NoSource(), schema="n long")
    work = job.task("work", Sql("SELECT * FROM input"))
    back = job.task("back", lambda r: r, schema="n long")
    rows >> work >> back >> work
    back >> job.sink("out", NoSink())
    (problem,) = find_problems(job)
    assert (problem.code, problem.vertex) == ("unsupported", "work")
    assert "cannot be part of a loop" in problem.message


def test_edges_by_key_and_windows_do_not_go_into_columns() -> None:
    job = Job("columns")
    rows = job.source("rows", NoSource(), schema="n long")
    work = job.task("work", Sql("SELECT * FROM input"))
    job.connect(rows, work, by=SAME_KEY)
    work >> job.task("count", Count()) >> job.sink("out", NoSink())
    assert [problem.code for problem in find_problems(job)] == ["bad-partitioning"]
    codes = [code for code, _ in problems(Sql("SELECT 1"), window=CountWindow(3))]
    assert "unsupported" in codes


def test_side_streams_have_no_schema() -> None:
    job = Job("aside")
    source = job.source("rows", NoSource(), schema="n long")
    source >> job.sink("out", NoSink())
    source["errors"] >> job.task("query", Sql("SELECT * FROM input")) >> job.sink("bad", NoSink())
    assert [problem.code for problem in find_problems(job)] == ["no-schema"]
