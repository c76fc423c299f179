"""Newer code goes on from folders that version 0.1.0 has left: ledger, state, feedback, logs, agreements."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from v0_1_0 import jobs

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import JobFailedError
from penstock.log import Log, log_folder
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.spark.spark_runtime import SparkRuntime
from penstock.testing.local_engine import LocalRuntime
from support.engines import EITHER, LOCAL, SPARK

ARCHIVE = Path(jobs.__file__).with_name("home.tar.gz")
pytestmark = pytest.mark.usefixtures("spark_says")

ALL = range(2 * jobs.HALF)
Start = Callable[..., Handle]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home as version 0.1.0 has left it, with as much input again."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = Log.open(log_folder("numbers"))
    log.append([ps.Record(None, number) for number in range(jobs.HALF, 2 * jobs.HALF)])
    return tmp_path


@pytest.fixture(params=EITHER)
def start(request: pytest.FixtureRequest) -> Start:
    """Return what starts a job, without Spark and on it."""
    return starter(request.param)


def starter(engine: str) -> Start:
    def begin(job: ps.Job, **options: Any) -> Handle:
        runtime = LocalRuntime if engine == LOCAL else partial(SparkRuntime.open, job, "local[2]")
        return start_job(job, runtime, **options)

    return begin


def drain(*handles: Handle) -> None:
    for handle in handles:
        assert handle.wait(timeout=400)
    for handle in handles:
        handle.stop()


def read(name: str) -> Counter[tuple[Any, Any]]:
    log = Log.open(log_folder(name))
    return Counter((r.key, r.value) for p in range(log.partitions) for chunk in log.read(p, 0) for r in chunk)


def discarded(name: str) -> Counter[int]:
    return Counter(value["value"][0] for (_, value), _ in _unhashable(f"{name}.discarded"))


def _unhashable(name: str) -> list[tuple[tuple[Any, Any], int]]:
    log = Log.open(log_folder(name))
    return [((r.key, r.value), 1) for p in range(log.partitions) for chunk in log.read(p, 0) for r in chunk]


def check_loop(name: str) -> None:
    assert read(f"{name}-visits") == jobs.expected_visits(ALL)
    assert read(f"{name}-numbers") == jobs.expected_numbers(ALL)
    assert discarded(name) == Counter(n for n in ALL if n % 97 == 0)


def test_state_loops_and_side_streams(start: Start) -> None:
    drain(start(jobs.loop()))
    check_loop("loop")


def test_state_loops_and_side_streams_on_spark() -> None:
    """Its checkpoint is Spark's own: what the version before has planned is run as it was planned."""
    drain(starter(SPARK)(jobs.loop()))
    check_loop("loop")


def test_open_windows(start: Start) -> None:
    drain(start(jobs.windows()))
    assert read("windows-counts") == jobs.expected_counts(ALL)
    assert read("windows-sums") == jobs.expected_sums(ALL)


def test_at_most_once_the_batch_that_was_begun_is_given_up(home: Path, start: Start) -> None:
    given_up = Ledger(home / "jobs" / "once" / "ledger").intent()
    assert given_up is not None
    drain(start(jobs.loop("at-most-once", "once")))
    entry = Ledger(home / "jobs" / "once" / "ledger").latest()
    assert entry is not None
    assert entry.batch > given_up.batch
    numbers = read("once-numbers")
    lost = jobs.expected_numbers(ALL) - numbers
    assert not numbers - jobs.expected_numbers(ALL), "nothing is repeated"
    assert 0 < lost.total() <= 3 * 50, "the batch and what was on its way into it, not more"
    assert all(number < jobs.HALF for _, number in lost)


def test_at_most_once_a_job_that_began_without_input_goes_on(home: Path, start: Start) -> None:
    """In version 0.1.0 such a job was stuck for ever once it was started again; its folder is mended."""
    log = Log.create(log_folder("nothing"))

    def job() -> ps.Job:
        job = ps.Job("waiting", guarantee="at-most-once", parallelism=1)
        job.source("in", ps.LogSource("nothing")) >> job.sink("out", ps.LogSink("waiting-out"))
        return job

    drain(start(job()))
    stuck = LedgerEntry(0, {"batch": 0, "sources": {"in": {"0": 0}}})
    Ledger(home / "jobs" / "waiting" / "ledger").commit(stuck)
    log.append([ps.Record(None, number) for number in range(10)])
    drain(start(job()))
    assert read("waiting-out") == Counter((None, number) for number in range(10))


def test_replicas_and_what_they_have_agreed_on(home: Path, start: Start) -> None:
    def begin(number: int) -> Handle:
        title = f"replicas~{number}" if number else "replicas"
        replica_spec = ReplicaSpec(
            title, number, str(home / "agreements" / "replicas"), scratch=str(home / "scratch")
        )
        job = jobs.loop(name="replicas", k=1)
        return start(job, folder=home / "jobs" / f"replicas-{number}", replica_spec=replica_spec)

    drain(begin(0), begin(1))
    check_loop("replicas")


def test_a_ledger_of_a_version_to_come_is_refused_with_its_version(home: Path) -> None:
    ledger = home / "jobs" / "loop" / "ledger"
    newest = max(ledger.glob("*.json"))
    newest.write_text(newest.read_text().replace('"version": 1', '"version": 3'))
    with pytest.raises(JobFailedError, match=r"has version 3; this is version 2.*Penstock"):
        starter(LOCAL)(jobs.loop())
