"""DatabaseSink: the database decides whether a batch is in it, whatever became of those who insert."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.batch_table import Placeholders
from penstock.connect.database_sink import DatabaseSink
from penstock.errors import ConnectorError, FolderError, SettingError, UnstorableValueError
from penstock.graph.connector_api import WriteContext
from penstock.record import Record
from support.left_staged import left_staged

INSERT = "INSERT INTO totals VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "totals.db")) as database:
        database.execute("CREATE TABLE totals (user TEXT, total INTEGER CHECK (total >= 0))")
    return tmp_path / "totals.db"


class Connections:
    """Opens connections to a database; the next ones can be broken, before or behind their commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken: list[str] = []
        self.opened = 0

    def __call__(self) -> Any:
        self.opened += 1
        if self.broken and self.broken[0] == "connect":
            self.broken.pop(0)
            raise sqlite3.OperationalError("no route to the database")
        return Connection(sqlite3.connect(self.path, timeout=0.05), self.broken)


class Connection:
    def __init__(self, real: sqlite3.Connection, broken: list[str]) -> None:
        self._real = real
        self._broken = broken

    def commit(self) -> None:
        how = self._broken.pop(0) if self._broken else ""
        if how == "before":
            raise sqlite3.OperationalError("the connection was lost")
        self._real.commit()
        if how == "after":
            raise sqlite3.OperationalError("the connection was lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def sink_of(path: Path, insert: str = INSERT, **options: Any) -> tuple[DatabaseSink, Connections]:
    connections = Connections(path)
    options = {"folder": path.parent / "staged", "sleep": lambda seconds: None, **options}
    sink = DatabaseSink(connections, insert, **options)
    sink.prepare()
    return sink, connections


def stage(sink: DatabaseSink, records: list[Record], reject: Any = None, batch: int = 0) -> Any:
    writer = pickle.loads(pickle.dumps(sink)).writer(WriteContext("job", "out", batch, "task", reject))
    writer.write(records)
    return json.loads(json.dumps(writer.finish()))


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM totals ORDER BY rowid").fetchall()


def test_a_batch_is_inserted_once_however_often_it_is_committed(path: Path) -> None:
    sink, _ = sink_of(path)
    receipts = [stage(sink, [Record("ada", 1), Record("bob", 2)]), stage(sink, [Record(None, ("eve", 3))])]
    other, _ = sink_of(path)
    for committer in (sink, other, sink):
        committer.commit(0, receipts)
    assert rows(path) == [("ada", 1), ("bob", 2), ("eve", 3)]
    assert left_staged(path.parent / "staged") == []
    # A job that is started from scratch counts from 0 again, and that is another batch 0.
    sink.commit(0, [stage(sink, [Record("ada", 4)])])
    assert len(rows(path)) == 4


@pytest.mark.parametrize("how", ["connect", "before", "after"])
def test_a_lost_connection_is_tried_again(path: Path, how: str) -> None:
    sink, connections = sink_of(path)
    receipt = stage(sink, [Record("ada", 1)])
    connections.broken += [how]
    sink.commit(0, [receipt])
    assert rows(path) == [("ada", 1)], how


def test_what_fails_for_good_is_kept_and_repeated(path: Path) -> None:
    pauses: list[float] = []
    sink, connections = sink_of(path, retries=2, sleep=pauses.append, chance=lambda: 1.0)
    receipt = stage(sink, [Record("ada", 1)], batch=7)
    connections.broken += ["connect"] * 6
    with pytest.raises(ConnectorError) as caught:
        sink.commit(7, [receipt])
    assert (caught.value.job, caught.value.vertex) == ("job", "out")
    assert str(caught.value) == (
        "job 'job', vertex 'out': batch 7 was not inserted after 3 tries: OperationalError: no route to the"
        " database. The rows are kept: check the database and start the job again"
    )
    assert pauses == [0.5, 1.0]
    assert rows(path) == []
    sink.commit(7, [receipt])
    assert rows(path) == [("ada", 1)]


def test_a_row_that_the_database_refuses_keeps_the_whole_batch_out(path: Path) -> None:
    sink, connections = sink_of(path)
    before = connections.opened
    receipt = stage(sink, [Record("ada", 1), Record("bob", -1)])
    with pytest.raises(ConnectorError, match="IntegrityError: CHECK constraint failed"):
        sink.commit(0, [receipt])
    assert rows(path) == []
    assert connections.opened == before + 2, "it would not go better the next time"


def test_a_replica_that_was_faster_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, _ = sink_of(path)
    receipt = stage(sink, [Record("ada", 1)])
    other, _ = sink_of(path)
    add = sink._batches.add

    def late(*arguments: Any) -> None:
        other.commit(0, [receipt])  # between our look and our insert
        add(*arguments)

    monkeypatch.setattr(sink._batches, "add", late)
    sink.commit(0, [receipt])
    assert rows(path) == [("ada", 1)]


def test_rows_that_are_lost_are_told(path: Path) -> None:
    sink, _ = sink_of(path)
    receipts = [stage(sink, [Record("ada", 1)]), stage(sink, [Record("bob", 2)])]
    sink.discard(receipts[1:])
    with pytest.raises(FolderError, match="its rows are not in the database: restore the file"):
        sink.commit(0, receipts)
    assert rows(path) == []


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record("ada", (1, 2, 3)), "a row has 3 values, but insert takes 2"),
        (Record("ada", {"user": 1}), "a row must be a tuple, not dict"),
    ],
)
def test_a_record_without_a_row_is_rejected(path: Path, record: Record, reason: str) -> None:
    sink, _ = sink_of(path)
    refused: list[tuple[Record, str]] = []
    receipt = stage(sink, [record, Record("bob", 2)], reject=lambda *what: refused.append(what))
    sink.commit(0, [receipt])
    assert rows(path) == [("bob", 2)]
    assert refused == [(record, f"it cannot be converted to a row: ValueError: {reason}")]
    with pytest.raises(UnstorableValueError, match=reason):
        stage(sink, [record])


def by_length(record: Record) -> dict[str, Any]:
    return {"name": record.key, "length": len(record.value)}


def test_rows_by_name(path: Path) -> None:
    sink, _ = sink_of(path, "INSERT INTO totals VALUES (:name, :length + :length)", row=by_length)
    refused: list[Record] = []
    records = [Record("ada", "xyz"), Record("bob", 3)]
    sink.commit(0, [stage(sink, records, reject=lambda record, reason: refused.append(record))])
    assert rows(path) == [("ada", 6)]
    assert refused == records[1:]


def test_batches_of_long_ago_are_forgotten(path: Path) -> None:
    now = [0.0]
    sink, _ = sink_of(path, clock=lambda: now[0])
    for batch, at in ((5, 0.0), (900_000, 0.0), (1_000_000, 3e6)):
        now[0] = at
        sink.commit(batch, [stage(sink, [Record("ada", batch)], batch=batch)])
    with closing(sqlite3.connect(path)) as database:
        kept = database.execute("SELECT job, sink, batch FROM penstock_batches").fetchall()
    assert kept == [("job", "out", 1_000_000)]
    assert len(rows(path)) == 3


def test_a_connection_that_commits_by_itself_is_refused(path: Path) -> None:
    sink = DatabaseSink(
        lambda: sqlite3.connect(path, isolation_level=None), INSERT, folder=path.parent / "staged"
    )
    with pytest.raises(SettingError, match="autocommit off"):
        sink.prepare()


def test_a_database_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    sink = DatabaseSink(lambda: sqlite3.connect(tmp_path / "none" / "x.db"), INSERT, folder=tmp_path)
    with pytest.raises(SettingError, match=r"unable to open database file.*CREATE TABLE penstock_batches"):
        sink.prepare()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DatabaseSink("x.db", INSERT), "connect takes a function"),  # type: ignore[arg-type]
        (lambda: DatabaseSink(print, "INSERT INTO t VALUES (1)"), "no placeholder for a value"),
        (lambda: DatabaseSink(print, INSERT, batches="a; DROP TABLE b"), "the name of a table"),
        (lambda: DatabaseSink(print, INSERT, row=3), "row takes a function"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        make()


@pytest.mark.parametrize(
    ("insert", "style", "count"),
    [
        ("INSERT INTO t VALUES (?, ?)", "qmark", 2),
        ("INSERT INTO t VALUES (%s, '%s ? :no', 10 %% 3)", "format", 1),
        ("INSERT INTO t VALUES (%(a)s, %(b)s, %(a)s)", "pyformat", 2),
        ("INSERT INTO t VALUES (:1, :2, :1)", "numeric", 2),
        ("INSERT INTO t VALUES (:a, 'x:b', :c::int) -- :d", "named", 2),
        ("INSERT INTO \"a?b\" SELECT data ? 'x' FROM s WHERE id = %s", "format", 1),
    ],
)
def test_styles_of_placeholders(insert: str, style: str, count: int) -> None:
    found = Placeholders(insert)
    assert (found.style, found.count) == (style, count)


def test_it_is_exported_and_says_nothing_of_the_connection() -> None:
    sink = ps.DatabaseSink(lambda: sqlite3.connect("secret"), INSERT)
    assert sink.describe() == {"insert": INSERT, "batches": "penstock_batches", "folder": None}
    assert sink.shared
