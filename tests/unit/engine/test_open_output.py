"""Output that is not out when a job dies waits until it is, however long; what is out is left alone."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.connect.file_sink import STAGING
from penstock.engine.driver import batch_committer
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.ledger import Ledger
from penstock.errors import IncompatibleJobError, JobFailedError
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime

MONTH = 31 * 24 * 3600.0

Got = Counter[str]
"""What sinks have been called with that keep nothing."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    more_input()
    return tmp_path


def more_input() -> None:
    log = Log.create(log_folder("in"), partitions=1, exist_ok=True)
    log.append([ps.Record("k", n) for n in range(5)])


def job_with(*sinks: ps.Sink) -> ps.Job:
    job = ps.Job("open")
    source = job.source("in", ps.LogSource("in"))
    for number, sink in enumerate(sinks):
        source >> job.sink(f"out{number}", sink)
    return job


def run(job: ps.Job) -> None:
    with start_job(job, LocalRuntime) as handle:
        assert handle.wait(timeout=60)


def die(*_: object) -> None:
    raise InterruptedError("killed")


def kill_before_publishing(job: ps.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(batch_committer, "publish", die)
        with pytest.raises(JobFailedError, match="killed"):
            run(job)


def posting(got: Got, folder: Path | None = None) -> ps.HttpSink:
    sink = ps.HttpSink("http://127.0.0.1:1/", folder=folder)
    sink._post = lambda *given, **options: not got.update(["http"])  # type: ignore[method-assign]
    return sink


def table(home: Path, name: str = "one", folder: Path | None = None) -> ps.DatabaseSink:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(home / f"{name}.db")
        connection.execute("CREATE TABLE IF NOT EXISTS seen (key TEXT, value INTEGER)")
        return connection

    return ps.DatabaseSink(connect, "INSERT INTO seen VALUES (?, ?)", retries=0, folder=folder)


def calling(got: Got, folder: Path | None = None) -> ps.ForeachBatchSink:
    return ps.ForeachBatchSink(lambda batch, records: got.update(function=len(records)), folder=folder)


def rows(home: Path) -> int:
    with sqlite3.connect(home / "one.db") as connection:
        return int(connection.execute("SELECT count(*) FROM seen").fetchone()[0])


def lines(home: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in (home / "files").glob("part-*"))


KINDS: dict[str, tuple[Callable[[Path, Got], ps.Sink], Callable[[Path, Got], int]]] = {
    "log": (lambda home, got: ps.LogSink("out"), lambda home, got: sum(Log.open(log_folder("out")).ends())),
    "file": (lambda home, got: ps.FileSink(home / "files", "json"), lambda home, got: lines(home)),
    "function": (lambda home, got: calling(got), lambda home, got: got["function"]),
    "http": (lambda home, got: posting(got), lambda home, got: 5 * got["http"]),
    "database": (lambda home, got: table(home), lambda home, got: rows(home)),
}


def staged(home: Path) -> list[Path]:
    places = {"staged", "staging", STAGING}
    files = [path for path in sorted(home.rglob("*")) if path.is_file() and path.suffix != ".done"]
    return [path for path in files if places & {*path.parts}]


@pytest.mark.parametrize("kind", KINDS)
def test_two_sinks_in_one_place_get_what_has_waited_for_a_month(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, count = KINDS[kind]
    got: Got = Counter()
    kill_before_publishing(job_with(make(home, got), make(home, got)), monkeypatch)
    waiting = staged(home)
    assert len(waiting) == 2
    for path in waiting:
        os.utime(path, (time.time() - MONTH,) * 2)
    run(job_with(make(home, got), make(home, got)))
    assert count(home, got) == 10, "each sink has its five records"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_crash_has_left_goes_after_a_month(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _ = KINDS[kind]
    got: Got = Counter()
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "commit", die)
        with pytest.raises(JobFailedError, match="killed"):
            run(job_with(make(home, got)))
    [left] = staged(home)
    for age, found in ((MONTH / 2, [left]), (MONTH, [])):
        os.utime(left, (time.time() - age,) * 2)
        more_input()
        run(job_with(make(home, got)))
        assert staged(home) == found


PLACES: dict[str, Callable[[Path, str, Got], ps.Sink]] = {
    "function": lambda home, place, got: calling(got, home / place),
    "http": lambda home, place, got: posting(got, home / place),
    "database": lambda home, place, got: table(home, place, home / place),
    "log": lambda home, place, got: ps.LogSink("out", root=home / place),
}


@pytest.mark.parametrize("kind", PLACES)
def test_after_a_clean_stop_a_sink_may_be_elsewhere(kind: str, home: Path) -> None:
    got: Got = Counter()
    for place in ("one", "two", "one"):
        run(job_with(PLACES[kind](home, place, got)))
        more_input()


@pytest.mark.parametrize("kind", PLACES)
def test_while_output_waits_a_sink_that_is_elsewhere_is_refused(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: Got = Counter()
    kill_before_publishing(job_with(PLACES[kind](home, "one", got)), monkeypatch)
    option = "root" if kind == "log" else "folder"
    with pytest.raises(IncompatibleJobError, match=rf"had {option}='.*/one' and has {option}='.*/two'"):
        run(job_with(PLACES[kind](home, "two", got)))
    for place in ("one", "two"):
        run(job_with(PLACES[kind](home, place, got)))


@pytest.mark.parametrize("kind", PLACES)
def test_a_place_that_the_first_version_did_not_write_down_is_no_other_place(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: Got = Counter()
    kill_before_publishing(job_with(PLACES[kind](home, "one", got)), monkeypatch)
    file = home / "jobs" / "open" / "job.json"
    structure = json.loads(file.read_text())
    for vertex in structure["vertices"]:
        vertex["options"] = {
            name: value for name, value in vertex["options"].items() if name not in ("folder", "root")
        }
    file.write_text(json.dumps(structure))
    run(job_with(PLACES[kind](home, "one", got)))


def test_after_a_clean_stop_another_database_is_not_asked_for_the_last_batch(home: Path) -> None:
    run(job_with(table(home, "one")))
    more_input()
    run(job_with(table(home, "two")))
    assert rows(home) == 5


def test_what_is_known_to_be_out_is_not_looked_for(home: Path) -> None:
    got: Got = Counter()
    run(job_with(calling(got, home / "one")))
    ledger = Ledger(home / "jobs" / "open" / "ledger")
    last = ledger.latest()
    assert last is not None
    assert ledger.is_published(last.batch)
    lost = [{**receipt, "files": ["gone.seg"]} for receipt in last.receipts["out0"]]
    ledger.replace(replace(last, receipts={"out0": lost}))
    run(job_with(calling(got, home / "one")))
    assert got["function"] == 5


def test_a_note_of_what_is_out_is_made_anew_at_each_start(home: Path) -> None:
    """A ledger may have been put back from a copy: later batches are other ones then."""
    run(job_with(ps.LogSink("out")))
    ledger = Ledger(home / "jobs" / "open" / "ledger")
    batch = ledger.latest_batch()
    ledger.note_published(batch + 100)
    run(job_with(ps.LogSink("out")))
    assert ledger.is_published(batch)
    assert not ledger.is_published(batch + 1)


def test_a_note_of_batches_that_are_lost_says_nothing_of_those_that_have_their_numbers_now(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut that took ledger entries and left the note of what was out."""
    Log.create(log_folder("out"), partitions=1)
    job = job_with(ps.LogSink("out"))
    kill_before_publishing(job, monkeypatch)
    assert sum(Log.open(log_folder("out")).ends()) == 0
    ledger = next((home / "jobs" / "open").rglob("ledger"))
    (ledger / "published").write_text("99")
    run(job)
    assert sum(Log.open(log_folder("out")).ends()) == 5
