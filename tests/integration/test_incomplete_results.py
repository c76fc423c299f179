"""A result that breaks off on its way from Java, wherever it does: nothing is lost, nothing is doubled."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.batch_committer import ATTEMPTS
from penstock.engine.driver.job_handle import Handle
from penstock.engine.storage.ledger import Ledger
from penstock.log import Log, log_folder
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, ReplicaSpec
from penstock.spark.spark_runtime import start
from support.cut_results import ResultCutter, positions_of

pytestmark = pytest.mark.usefixtures("spark_says")

MASTER = "local[2]"
BATCH = 40
BATCHES = 5
CUTS = ATTEMPTS - 1
"""How often a batch may be cut and still be committed."""
LARGE = 250
"""Bytes of text for each record, where a batch's result is to be larger than 8 KB."""
HUGE = 100_000
"""So that it is larger than all buffers on the way."""
REPEATED = "incomplete batch is repeated"


class Tally(ps.StatefulTask):
    """Numbers what comes of each key, so that a batch that is lost or repeated shows in all that follow."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


def make(kind: str, *, text: int = 0, guarantee: str = "exactly-once", k: int = 0) -> ps.Job:
    """Return a job of a kind: what runs before the shuffle, behind it, and in Spark itself differs."""
    job = ps.Job("cut", guarantee=guarantee, parallelism=2, k=k)
    source = job.source("in", ps.LogSource("in", max_records_per_batch=BATCH), schema="n long")
    vertex = source
    if kind.startswith("native"):
        vertex = vertex >> job.task("sql", ps.Sql("SELECT n % 7 AS _key, n FROM input"))
        vertex = vertex >> job.task("plain", lambda r: (r.key, r.value["n"]))
    else:
        vertex = vertex >> job.task("by_key", lambda r: (r.value["n"] % 7, r.value["n"]))
    if kind.endswith("keyed"):
        vertex = vertex >> job.task("tally", Tally())
    vertex >> job.sink("out", ps.LogSink("out"))
    if text:
        # What a sink in the driver gets travels with the result.
        vertex >> job.task("write", lambda r: "x" * text) >> job.sink("text", ps.MemorySink())
    return job


EXPECTED = Counter((n % 7, n) for n in range(BATCH * BATCHES))
VISITS = Counter((key, n + 1) for key in range(7) for n in range(len(range(key, BATCH * BATCHES, 7))))


def written() -> list[ps.Record]:
    log = Log.open(log_folder("out"))
    return [record for p in range(log.partitions) for chunk in log.read(p, 0) for record in chunk]


def check_exact(kind: str) -> None:
    """See that every number came out once; behind a shuffle also that the state has counted each once."""
    if kind.endswith("keyed"):
        assert Counter((r.key, r.value[1]) for r in written()) == EXPECTED
        assert Counter((r.key, r.value[0]) for r in written()) == VISITS
    else:
        assert Counter((r.key, r.value) for r in written()) == EXPECTED


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return Penstock's home, with numbers in two partitions."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = Log.create(log_folder("in"), partitions=2)
    for first in range(0, BATCH * BATCHES, BATCH // 2):  # What is appended at once goes into one partition.
        log.append([ps.Record(None, {"n": n}) for n in range(first, first + BATCH // 2)])
    return tmp_path


@pytest.fixture
def cutter(monkeypatch: pytest.MonkeyPatch) -> ResultCutter:
    return ResultCutter(monkeypatch)


class EachPosition:
    """Cuts each batch as often as it may be, each time at another position, until all were had."""

    def __init__(self) -> None:
        self.next = 0
        self.wanted = 1
        self._thread = threading.local()
        """A batch and its repetitions run in the same thread, those of two replicas in different ones."""

    def __call__(self, stream: bytes) -> int | None:
        attempt = getattr(self._thread, "attempt", 0)
        self._thread.attempt = (attempt + 1) % ATTEMPTS
        if attempt == CUTS:
            return None
        positions = positions_of(stream)
        self.wanted = max(self.wanted, len(positions))
        position = positions[self.next % len(positions)]
        self.next += 1
        return position


def after(whole: int, cut: Callable[[bytes], int]) -> Callable[[bytes], int | None]:
    """Cut all results but the first ones."""
    seen = count()
    return lambda stream: cut(stream) if next(seen) >= whole else None


def repeats(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if REPEATED in record.getMessage()]


FULL = pytest.mark.full
KINDS = [
    pytest.param("keyed", False, id="keyed", marks=FULL),
    pytest.param("keyed", True, id="keyed-large"),
    pytest.param("native-keyed", True, id="native-keyed-large"),
    pytest.param("direct", False, id="direct"),
    pytest.param("native", False, id="native", marks=FULL),
    pytest.param("direct", True, id="direct-large", marks=FULL),
    pytest.param("native", True, id="native-large", marks=FULL),
    pytest.param("native-keyed", False, id="native-keyed", marks=FULL),
]


@pytest.mark.parametrize(("kind", "large"), KINDS)
def test_nothing_is_lost_wherever_a_result_is_cut(
    cutter: ResultCutter, caplog: pytest.LogCaptureFixture, kind: str, large: bool
) -> None:
    cutter.cut = plan = EachPosition()
    with caplog.at_level(logging.WARNING):
        ps.run(make(kind, text=LARGE if large else 0), master=MASTER)
    check_exact(kind)
    assert plan.next == BATCHES * CUTS
    assert plan.next >= plan.wanted, "each position was had"
    assert len(repeats(caplog)) == BATCHES * CUTS, "each repetition is one line in the log"
    assert cutter.largest > 8192 or not large


@pytest.mark.parametrize("kind", ["keyed", pytest.param("native-keyed", marks=FULL)])
def test_no_replica_offers_a_cut_result(home: Path, cutter: ResultCutter, kind: str) -> None:
    AgreementFolder(home / "agreement").create(Charter(0, {}))
    cutter.cut = EachPosition()

    def begin(number: int) -> Handle:
        name = f"cut~{number}" if number else "cut"
        replica_spec = ReplicaSpec(
            name, number, str(home / "agreement"), scratch=str(home / f"scratch-{number}")
        )
        return start(
            make(kind, text=LARGE, k=1),
            master=MASTER,
            folder=home / f"member-{number}",
            replica_spec=replica_spec,
        )

    with begin(0) as one, begin(1) as other:
        assert one.wait(timeout=400)
        assert other.wait(timeout=400)
    assert cutter.cuts >= BATCHES
    check_exact(kind)
    entries = [Ledger(home / f"member-{n}" / "ledger").latest() for n in (0, 1)]
    for entry in entries:
        assert entry is not None
        position = entry.end["sources"]["in"]
        assert sum(count for name, count in position.items() if name.isdigit()) == BATCH * BATCHES


@pytest.mark.parametrize("kind", ["keyed", pytest.param("native-keyed", marks=FULL)])
def test_java_that_cannot_send_the_rest_of_a_result_says_so(
    cutter: ResultCutter, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    cutter.hang_up_after = 1000
    with caplog.at_level(logging.WARNING):
        ps.run(make(kind, text=HUGE), master=MASTER)
    check_exact(kind)
    [said] = repeats(caplog)
    assert "Java could not send the result" in said


def test_a_result_that_stays_incomplete_fails_the_job_and_nothing_is_committed(
    home: Path, cutter: ResultCutter
) -> None:
    cutter.cut = after(3, lambda stream: len(stream) - 1)
    with pytest.raises(ps.JobFailedError, match=f"batch 3 is incomplete.*it was run {ATTEMPTS} times"):
        ps.run(make("keyed"), master=MASTER)
    assert Ledger(home / "jobs" / "cut" / "ledger").latest_batch() == 2
    cutter.cut = lambda _: None
    ps.run(make("keyed"), master=MASTER)
    check_exact("keyed")


def test_at_most_once_an_incomplete_batch_is_given_up_and_not_repeated(
    home: Path, cutter: ResultCutter
) -> None:
    cutter.cut = after(2, lambda stream: len(stream) // 2)
    with pytest.raises(ps.JobFailedError, match="at most once, a batch is not repeated"):
        ps.run(make("direct", guarantee="at-most-once"), master=MASTER)
    cutter.cut = lambda _: None
    ps.run(make("direct", guarantee="at-most-once"), master=MASTER)
    found = Counter((r.key, r.value) for r in written())
    assert not found - EXPECTED
    assert (EXPECTED - found).total() == BATCH, "the batch that was cut, and no other"
