"""What is staged and gone is never taken for delivered; and nobody removes what another job has staged."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connect import file_sink, sink_staging
from penstock.connect.database_sink import DatabaseSink
from penstock.connect.driver_connectors import ForeachBatchSink
from penstock.connect.file_sink import FileSink
from penstock.connect.http_sink import HttpSink
from penstock.connect.log_connectors import LogSink
from penstock.connect.sink_staging import DeliveryMarks
from penstock.errors import FolderError, LogError
from penstock.graph.connector_api import Receipt, Sink, WriteContext
from penstock.record import Record

MONTH = 31 * 24 * 3600


def _database(folder: Path) -> DatabaseSink:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(folder / "table.db")
        connection.execute("CREATE TABLE IF NOT EXISTS seen (key TEXT, value INTEGER)")
        return connection

    return DatabaseSink(connect, "INSERT INTO seen VALUES (?, ?)", folder=folder, retries=0)


def _posting(folder: Path) -> HttpSink:
    sink = HttpSink("http://127.0.0.1:1/", folder=folder)
    sink._post = lambda *given, **options: True  # type: ignore[method-assign]
    return sink


SINKS: dict[str, Callable[[Path], Sink]] = {
    "log": lambda folder: LogSink("out", root=folder),
    "file": lambda folder: FileSink(folder, "json"),
    "function": lambda folder: ForeachBatchSink(lambda batch, records: None, folder=folder),
    "http": _posting,
    "database": _database,
}


def stage(sink: Sink, job: str, batch: int = 0) -> Receipt:
    sink.prepare()
    writer = sink.writer(WriteContext(job, "out", batch, f"{job}-{batch}"))
    writer.write([Record(str(n), n) for n in range(3)])
    return json.loads(json.dumps(writer.finish()))


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def make_old(paths: set[Path]) -> None:
    then = time.time() - MONTH
    for path in paths:
        os.utime(path, (then, then))


@pytest.mark.parametrize("kind", SINKS)
def test_leftovers_of_a_job_go_and_what_another_job_waits_for_stays(kind: str, tmp_path: Path) -> None:
    """The other job died before its output was out, and is started again after a month."""
    other = SINKS[kind](tmp_path)
    waiting = stage(other, "other")
    stage(SINKS[kind](tmp_path), "mine")
    made = files(tmp_path)
    make_old(made)
    sink = SINKS[kind](tmp_path)
    sink.commit(1, [stage(sink, "mine", 1)])
    assert made <= files(tmp_path), "another sink of mine may wait for it"
    sink.tidy("mine")
    gone = made - files(tmp_path)
    assert len(gone) == 1, "the leftover of mine"
    other.commit(0, [waiting])
    if kind == "log":
        assert isinstance(other, LogSink)
        assert sum(other.log.ends()) == 6
    if kind == "file":
        assert len(list(tmp_path.glob("part-*"))) == 2


@pytest.mark.parametrize("kind", SINKS)
def test_what_is_gone_and_was_never_out_is_told(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore from a copy that lacks it: before, it was taken for delivered."""
    monkeypatch.setattr(file_sink, "_RENAME_TIMEOUT", 0.05)
    sink = SINKS[kind](tmp_path)
    sink.prepare()
    before = files(tmp_path)
    receipts = [stage(sink, "job")]
    for path in files(tmp_path) - before:
        path.unlink(missing_ok=True)
    with pytest.raises((FolderError, LogError), match=r"no longer exists|is missing"):
        sink.commit(0, receipts)


@pytest.mark.parametrize("kind", ["file", "function", "http"])
def test_who_knows_better_can_say_so(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink, "_RENAME_TIMEOUT", 0.05)
    sink = SINKS[kind](tmp_path)
    receipts = [stage(sink, "job")]
    for path in files(tmp_path):
        path.unlink()
    with pytest.raises(FolderError) as told:
        sink.commit(0, receipts)
    mark = str(told.value).partition("create the empty file ")[2].partition(" and start")[0]
    Path(mark).touch()
    sink.commit(0, receipts)


@pytest.mark.parametrize("kind", ["file", "function", "http"])
def test_what_is_out_stays_so_whoever_takes_it_away(kind: str, tmp_path: Path) -> None:
    sink = SINKS[kind](tmp_path)
    receipts = [stage(sink, "job")]
    sink.commit(0, receipts)
    for path in tmp_path.glob("part-*"):
        path.unlink()
    made = files(tmp_path)
    for again in (sink, SINKS[kind](tmp_path)):
        again.commit(0, receipts)
        assert files(tmp_path) == made


@pytest.mark.parametrize("kind", ["file", "function", "http"])
def test_marks_do_not_become_more_and_more(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_staging, "_KEPT_MARKS", 4)
    last: list[Any] = []
    for run in range(3):
        sink = SINKS[kind](tmp_path)
        for batch in range(run * 5, run * 5 + 5):
            last = [stage(sink, "job", batch)]
            sink.commit(batch, last)
            marks = {path for path in files(tmp_path) if path.suffix == ".done"}
            assert len(marks) == min(batch + 1, 4)
    sink.commit(14, last)


@pytest.mark.parametrize("kind", ["file", "function", "http", "database"])
def test_receipts_of_the_first_version_are_committed_by_its_rules(kind: str, tmp_path: Path) -> None:
    """It had one folder for all jobs, and no marks that stayed: nothing left meant that all was out."""
    sink = SINKS[kind](tmp_path)
    receipt = stage(sink, "job")
    place = tmp_path / (file_sink.STAGING if kind == "file" else "")
    if kind == "file":
        [[staged, final]] = receipt["files"]
        receipt = {"files": [[final, final]]}
    else:
        [staged] = receipt["files"]
        final = Path(staged).name
        receipt = {**receipt, "files": [final]}
        del receipt["marked"]
    (place / staged).rename(place / final)
    for _ in range(2):
        sink.commit(0, [receipt])
    assert {path.suffix for path in files(tmp_path)} <= {".jsonl", ".db"}


def test_marks_of_one_folder_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []
    rglob = Path.rglob

    def noted(folder: Path, pattern: str) -> Iterator[Path]:
        listed.append(folder)
        return iter(rglob(folder, pattern))

    monkeypatch.setattr(Path, "rglob", noted)
    marks = DeliveryMarks()
    for batch in range(100):
        marks.make(tmp_path / f"{batch}.done")
    assert listed == [tmp_path]
