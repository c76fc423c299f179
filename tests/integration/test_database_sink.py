"""A job on real Spark that keeps a table, and goes on after the database was away."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.log import log_folder
from support.running import Engine

COUNT = 500


class Away:
    """A database that can be away; only the driver may connect to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.away = False

    def __call__(self) -> sqlite3.Connection:
        if self.away:
            raise sqlite3.OperationalError("the database is away")
        return sqlite3.connect(self.path, timeout=30)

    def __reduce__(self) -> Any:
        raise AssertionError("how to connect has left the driver")


def job_of(database: Away) -> ps.Job:
    def row(record: ps.Record) -> dict[str, Any]:
        if record.value % 100 == 99:
            raise ValueError("no row for this")
        return {"user": record.key, "n": record.value}

    job = ps.Job("table", on_error="discard")
    numbers = job.source("numbers", ps.LogSource("numbers", max_records_per_batch=COUNT // 4))
    sink = ps.DatabaseSink(database, "INSERT INTO seen VALUES (:user, :n)", row=row, retries=0)
    numbers >> job.task("name", lambda r: [(f"u{r.value % 7}", r.value)]) >> job.sink("table", sink)
    return job


def test_a_table_has_each_row_once_after_the_database_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Engine
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    log = ps.Log.create(log_folder("numbers"), partitions=2)
    log.append([ps.Record(None, n) for n in range(COUNT)])
    database = Away(tmp_path / "table.db")
    with closing(database()) as connection:
        connection.execute("CREATE TABLE seen (user TEXT, n INTEGER)")

    def rows() -> Counter[tuple[str, int]]:
        with closing(database()) as connection:
            return Counter(connection.execute("SELECT user, n FROM seen").fetchall())

    job = job_of(database)
    with spark.start(job) as handle:
        handle.follow("drained")
        assert sum(rows().values()) == COUNT - COUNT // 100
        database.away = True
        log.append([ps.Record(None, n) for n in range(COUNT, 2 * COUNT)])
        with pytest.raises(ps.ConnectorError, match=r"job 'table', vertex 'table': batch .*is away"):
            handle.follow("drained")
    database.away = False
    report = spark.run(job_of(database))
    assert report.batches >= 1
    assert rows() == Counter((f"u{n % 7}", n) for n in range(2 * COUNT) if n % 100 != 99)
    errors = ps.Log.open(log_folder("table.errors"))
    assert sum(errors.ends()) == 2 * COUNT // 100
