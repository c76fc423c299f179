"""A value that a sink has no form for is told with its record, its job and its vertex."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.job_start import start_job
from penstock.testing.local_engine import LocalRuntime


class _Strange:
    def __repr__(self) -> str:
        return "<strange>"


def _sinks(folder: Path) -> dict[str, tuple[Any, Any]]:
    database = str(folder / "rows.db")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE rows (a, b)")
    return {
        "log": (ps.LogSink("out", root=folder), _Strange()),
        "partitioned log": (ps.LogSink("parts", root=folder, partitions=3), _Strange()),
        "json": (ps.FileSink(folder / "json", format="json"), {"a": _Strange()}),
        "parquet": (ps.FileSink(folder / "parquet", schema="n long"), {"n": "many"}),
        "http": (ps.HttpSink("http://127.0.0.1:9/", folder=folder / "http"), {1: 2}),
        "database": (
            ps.DatabaseSink(
                lambda: sqlite3.connect(database), "INSERT INTO rows VALUES (?, ?)", folder=folder / "staged"
            ),
            (1, 2, 3),
        ),
    }


@pytest.mark.parametrize("name", ["log", "partitioned log", "json", "parquet", "http", "database"])
def test_the_record_is_shown(tmp_path: Path, name: str) -> None:
    sink, value = _sinks(tmp_path)[name]
    fine = ("a", 1) if name == "database" else {"n": 1}
    items = [ps.Record("fine", fine), ps.Record("guilty", value), ps.Record("fine", fine)]
    job = ps.Job("strange")
    source = job.source("in", ps.MemorySource(list(range(len(items)))))
    source >> job.task("make", _make(items)) >> job.sink("out", sink)
    with (
        pytest.raises(ps.TaskError) as wrong,
        start_job(job, LocalRuntime, folder=tmp_path / "job") as handle,
    ):
        handle.wait("drained", timeout=60)
    assert (wrong.value.job, wrong.value.vertex) == ("strange", "out")
    assert wrong.value.record.startswith("Record(key='guilty', value=")
    assert wrong.value.cause.startswith("UnstorableValueError: ")


def _make(items: list[ps.Record]) -> Any:
    return lambda record: [items[record.value]]
