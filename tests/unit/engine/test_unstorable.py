"""A value that a sink has no form for is told with its record, its job and its vertex."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.job_start import start_job
from penstock.engine.side_streams import seconds_of
from penstock.log import Log
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


class _Number(ps.StatefulTask):
    def update(self, key: Any, values: list[Any], state: Any) -> Any:
        return (state or 0) + len(values), [(key, len(values))]


_PLACES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sink": (lambda record: record, {}),
    "stateful": (_Number(), {}),
    "window": (ps.Count(), {"window": ps.TimeWindow(10)}),
    "window of two": (_Number(), {"window": ps.CountWindow(2)}),
    "loop": (lambda record: record, {}),
}
_TIMES: dict[str, Any] = {
    "huge": 10**400,
    "without a text": 10**5000,
    "text": "noon",
    "datetime": datetime(2026, 1, 1),
}


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("time", _TIMES)
def test_a_time_that_is_none_ends_no_job_that_goes_on_after_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, time: str
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    items = [ps.Record("a", 1, 1.0), ps.Record("a", 2, _TIMES[time]), ps.Record("a", 3, 2.0)]
    job = ps.Job("timely", on_error="discard", max_iterations=0)
    source = job.source("in", ps.MemorySource(list(range(len(items)))))
    task, options = _PLACES[place]
    work = source >> job.task("make", _make(items)) >> job.task("work", task, **options)
    if place == "loop":
        work >> work
    work >> job.sink("out", ps.LogSink("out"))
    with start_job(job, LocalRuntime, folder=tmp_path / "job") as handle:
        handle.wait("drained", timeout=60)
    shown = {"huge": "1000", "without a text": "<int whose repr", "text": "noon", "datetime": "2026"}[time]
    stream = "discarded" if place == "loop" else "errors"
    entries = _all_of(tmp_path / "logs" / f"timely.{stream}")
    assert [record.key for record in entries if shown in str(record.value)] == ["a"]


def _all_of(folder: Path) -> list[ps.Record]:
    log = Log.open(folder)
    return [record for chunk in log.read(0, 0) for record in chunk]


@pytest.mark.parametrize(
    ("ts", "stored"),
    [(None, None), (1.5, 1.5), (2, 2), (Decimal("2.5"), 2.5), (10**400, None), ("5", None), (1j, None)],
    ids=["none", "float", "int", "decimal", "huge", "text", "complex"],
)
def test_the_time_of_an_entry_is_one_that_a_log_stores(ts: Any, stored: Any) -> None:
    assert seconds_of(ts) == stored
    failed = ps.Failed("job", "vertex", ps.Record("a", 1, ts), "ValueError", "wrong")
    late = ps.Late("job", "vertex", ps.Record("a", 1, ts), 5.0)
    discarded = ps.Discarded("job", "vertex", ps.Record("a", 1, ts), ("vertex",), 1, 0)
    for entry in (failed, late, discarded):
        record = entry.to_record()
        assert record.ts == stored
        assert stored is not None or ts is None or repr(ts)[:20] in str(record.value)
        assert type(entry).from_record(record).value == 1
