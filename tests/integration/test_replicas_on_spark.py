"""Replicas of a job, two queries of one process: they agree, and the output is there once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.engine.storage.ledger import Ledger
from penstock.errors import ReplicaDivergedError
from penstock.log import Log, log_folder
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, ReplicaSpec
from support.engines import LOCAL, SPARK, each_on
from support.running import Engine
from support.waiting import DEADLINE, eventually


class Tally(ps.StatefulTask):
    """Numbers what comes of each key."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


def tally(task: ps.StatefulTask | None = None) -> ps.Job:
    job = ps.Job("tally", k=1, parallelism=2)
    source = job.source("in", ps.LogSource("numbers", max_records_per_batch=200))
    (
        source
        >> job.task("by_key", lambda r: (r.value % 7, r.value))
        >> job.task("tally", task or Tally())
        >> (job.sink("out", ps.LogSink("tallied")))
    )
    return job


def replica_spec(folder: Path, number: int, *, holds: bool = False) -> ReplicaSpec:
    name = f"tally~{number}" if number else "tally"
    scratch = folder / f"scratch-{number}"
    return ReplicaSpec(name, number, str(folder / "agreement"), holds=holds, scratch=str(scratch))


def begin(
    engine: Engine, folder: Path, number: int, job: ps.Job | None = None, *, holds: bool = False
) -> Handle:
    return engine.start(
        job or tally(),
        folder=folder / f"member-{number}",
        replica_spec=replica_spec(folder, number, holds=holds),
    )


def expected(count: int) -> Counter[tuple[int, int, int]]:
    seen: Counter[int] = Counter()
    found: Counter[tuple[int, int, int]] = Counter()
    for value in range(count):
        seen[value % 7] += 1
        found[value % 7, seen[value % 7], value] += 1
    return found


def written() -> Counter[tuple[int, int, int]]:
    log = Log.open(log_folder("tallied"))
    return Counter(
        (r.key, *r.value) for p in range(log.partitions) for chunk in log.read(p, 0) for r in chunk
    )


def staged() -> list[str]:
    return [path.name for path in (log_folder("tallied") / "staging").iterdir()]


@pytest.fixture
def agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgreementFolder:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = Log.create(log_folder("numbers"))
    log.append([ps.Record(None, n) for n in range(1000)])
    found = AgreementFolder(tmp_path / "agreement")
    found.create(Charter(0, {}))
    return found


@pytest.mark.parametrize(
    ("holds", "engine"), each_on({"active": False, "standby": True}, on_spark=["active"]), indirect=["engine"]
)
def test_two_replicas_give_the_output_once(
    tmp_path: Path, agreement: AgreementFolder, engine: Engine, holds: bool
) -> None:
    with begin(engine, tmp_path, 0, holds=holds) as one, begin(engine, tmp_path, 1, holds=holds) as other:
        assert one.wait(timeout=DEADLINE)
        assert other.wait(timeout=DEADLINE)
    assert written() == expected(1000)
    assert staged() == []
    ledgers = [Ledger(tmp_path / f"member-{n}" / "ledger") for n in (0, 1)]
    ends = [[ledger.read(b).end for b in range(ledger.latest_batch() + 1)] for ledger in ledgers]  # type: ignore[union-attr]
    assert ends[0] == ends[1]
    by = {commit.by for b in range(len(ends[0])) if (commit := agreement.committed(b)) is not None}
    assert by <= {"tally", "tally~1"}


@pytest.mark.parametrize("holds", [False, True])
def test_what_a_sink_refuses_is_set_aside_once_whoever_gives_the_batch(
    tmp_path: Path, agreement: AgreementFolder, engine: Engine, holds: bool
) -> None:
    def job() -> ps.Job:
        made = ps.Job("tally", k=1, on_error="discard")
        source = made.source("in", ps.LogSource("numbers", max_records_per_batch=200))
        # A log can store bytes and JSON cannot; an object can be stored nowhere but in the log of errors.
        odd = made.task("odd", lambda r: {0: b"0", 1: object()}.get(r.value % 100, r.value))
        source >> odd >> made.sink("out", ps.FileSink(tmp_path / "files", format="json"))
        return made

    with (
        begin(engine, tmp_path, 0, job(), holds=holds) as one,
        begin(engine, tmp_path, 1, job(), holds=holds) as other,
    ):
        assert one.wait(timeout=DEADLINE)
        assert other.wait(timeout=DEADLINE)
    lines = [line for path in (tmp_path / "files").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(map(int, lines)) == [n for n in range(1000) if n % 100 > 1]
    errors = Log.open(log_folder("tally.errors"))
    refused = [
        r.value["vertex"] for p in range(errors.partitions) for chunk in errors.read(p, 0) for r in chunk
    ]
    assert refused == ["out"] * 20


def test_a_replica_that_comes_late_follows_and_doubles_nothing(
    tmp_path: Path, agreement: AgreementFolder, engine: Engine
) -> None:
    with begin(engine, tmp_path, 0) as one:
        assert one.wait(timeout=DEADLINE)
    with begin(engine, tmp_path, 1) as other:
        assert other.wait(timeout=DEADLINE)
        assert written() == expected(1000)
        Log.open(log_folder("numbers")).append([ps.Record(None, n) for n in range(1000, 1500)])
        assert other.wait(timeout=DEADLINE)
    assert written() == expected(1500)
    commit = agreement.committed(0)
    assert commit is not None
    assert commit.by == "tally"
    assert staged() == []


def test_replicas_that_have_nothing_to_do_yet_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Engine
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    log = Log.create(log_folder("numbers"))
    AgreementFolder(tmp_path / "agreement").create(Charter(0, {}))
    commits = tmp_path / "member-0" / "checkpoint" / "commits"
    with begin(spark, tmp_path, 0) as one:
        # Spark runs a batch even so.
        eventually("Spark's first batch", (commits / "0").exists, meanwhile=one.check)
        log.append([ps.Record(None, n) for n in range(100)])
        ledger = Ledger(tmp_path / "member-0" / "ledger")
        eventually("a batch in the ledger", lambda: ledger.latest_batch() >= 0, meanwhile=one.check)
        assert one.wait(timeout=DEADLINE)
    assert written() == expected(100)


class _Odd(Tally):
    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        total, items = super().update(key, values, state)
        return total, [(k, (n, -value)) for k, (n, value) in items]


@pytest.mark.parametrize("engine", [LOCAL, SPARK], indirect=True)
def test_a_replica_that_differs_is_told_so_and_its_output_dropped(
    tmp_path: Path, agreement: AgreementFolder, engine: Engine
) -> None:
    with begin(engine, tmp_path, 0) as one:
        assert one.wait(timeout=DEADLINE)
    other = begin(engine, tmp_path, 1, tally(_Odd()))
    with pytest.raises(ReplicaDivergedError) as caught:
        other.wait(timeout=DEADLINE)
    other.stop()
    assert (caught.value.batch, caught.value.vertex, caught.value.by) == (0, "out", "tally")
    assert written() == expected(1000)
    assert staged() == []


def test_batches_begin_no_sooner_than_the_interval_says(
    tmp_path: Path, agreement: AgreementFolder, engine: Engine
) -> None:
    job = tally()
    job.interval = "700ms"
    with begin(engine, tmp_path, 0, job) as one, begin(engine, tmp_path, 1, job) as other:
        assert one.wait(timeout=DEADLINE)
        assert other.wait(timeout=DEADLINE)
    plans = [plan.at for batch in range(5) if (plan := agreement.plan(batch)) is not None]
    assert len(plans) == 5
    assert min(after - before for before, after in pairwise(plans)) > 0.6
    assert written() == expected(1000)
