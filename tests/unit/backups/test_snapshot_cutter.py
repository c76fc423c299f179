"""A copy of a job's home has the output that was not out yet, and knows what was."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.backups.snapshots.snapshot_cutter import SnapshotCutter
from penstock.backups.snapshots.snapshot_restore import make_log_folders
from penstock.connect.database_sink import DatabaseSink
from penstock.connect.http_sink import HttpSink
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.errors import PenstockError
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime

JOB = "staging"
NUMBERS = list(range(20))


class Place:
    """A service outside of the cluster: a function, a database and a web service that all refuse or take."""

    def __init__(self, folder: Path) -> None:
        self.refuses = True
        self.called: dict[str, list[Any]] = {}
        self.posted: dict[str, bytes] = {}
        self._database = folder / "table.db"
        with closing(sqlite3.connect(self._database)) as connection:
            connection.execute("CREATE TABLE seen (key TEXT, value INTEGER)")

    def call(self, batch: ps.BatchNumber, records: list[ps.Record]) -> None:
        self._answer()
        assert batch.id not in self.called
        self.called[batch.id] = [record.value for record in records]

    def connect(self) -> sqlite3.Connection:
        self._answer()
        return sqlite3.connect(self._database)

    def post(self, key: str, body: bytes) -> None:
        self._answer()
        assert key not in self.posted
        self.posted[key] = body

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self._database)) as connection:
            return sorted(value for (value,) in connection.execute("SELECT value FROM seen"))

    def _answer(self) -> None:
        if self.refuses:
            raise ConnectionRefusedError("it is away")


def run(home: Path, place: Place, kind: str, revision: int) -> None:
    """Run the job in a home until all is processed."""
    folder = take_over(home / "cluster-jobs" / JOB, Claim(revision, 1))
    sinks: dict[str, ps.Sink] = {
        "function": ps.ForeachBatchSink(place.call),
        "database": _Table(place),
        "http": _Posting(place),
    }
    job = ps.Job(JOB)
    job.source("in", ps.LogSource("in")) >> job.sink("out", sinks[kind])
    with start_job(job, LocalRuntime, folder=folder, taken=True) as handle:
        handle.wait(timeout=60)


class _Table(DatabaseSink):
    def __init__(self, place: Place) -> None:
        super().__init__(place.connect, "INSERT INTO seen VALUES (?, ?)", retries=0)
        self._place = place

    def prepare(self) -> None:
        refuses, self._place.refuses = self._place.refuses, False
        super().prepare()
        self._place.refuses = refuses

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_place": None}


class _Posting(HttpSink):
    def __init__(self, place: Place) -> None:
        super().__init__("http://127.0.0.1:1/")
        self._place = place

    def _post(self, receipt: Any, key: str, body: bytes, *, can_split: bool) -> bool:
        assert can_split
        self._place.post(key, body)
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_place": None}


def copied(home: Path, into: Path) -> Path:
    """Copy a home as it is restored on another node."""
    cutter = SnapshotCutter(home, JOB, into.with_name(f"{into.name}-cut"))
    cut = cutter.cut(number=1, revision=1, attempt=1, before=None, now=1.0)
    assert cut is not None
    for piece in cut.pieces:
        target = into / piece.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with cutter.open(piece) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    make_log_folders(into)
    return into


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    Log.create(log_folder("in", home), partitions=1).append([ps.Record("k", n) for n in NUMBERS])
    return home


@pytest.mark.parametrize("kind", ["function", "database", "http"])
def test_output_that_was_not_out_goes_out_of_the_copy(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    with pytest.raises(PenstockError, match="it is away"):
        run(home, place, kind, 1)
    copy = copied(home, tmp_path / "copy")
    shutil.rmtree(home)  # with the node
    monkeypatch.setenv("PENSTOCK_HOME", str(copy))
    place.refuses = False
    run(copy, place, kind, 2)
    if kind == "database":
        assert place.rows() == NUMBERS
    else:
        assert len(place.called or place.posted) == 1
    if kind == "function":
        assert list(place.called.values()) == [NUMBERS]


@pytest.mark.parametrize("kind", ["function", "database", "http"])
def test_output_that_was_out_stays_so_in_the_copy(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.refuses = False
    run(home, place, kind, 1)
    copy = copied(home, tmp_path / "copy")
    shutil.rmtree(home)
    monkeypatch.setenv("PENSTOCK_HOME", str(copy))
    run(copy, place, kind, 2)  # The places refuse what comes a second time.
    if kind == "database":
        assert place.rows() == NUMBERS


def test_a_copy_that_lacks_it_is_not_taken_for_one_from_which_all_is_out(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    with pytest.raises(PenstockError):
        run(home, place, "function", 1)
    copy = copied(home, tmp_path / "copy")
    shutil.rmtree(copy / "staged")
    monkeypatch.setenv("PENSTOCK_HOME", str(copy))
    place.refuses = False
    with pytest.raises(PenstockError, match=r"is missing(.|\n)*in job 'staging', vertex 'out'"):
        run(copy, place, "function", 2)
