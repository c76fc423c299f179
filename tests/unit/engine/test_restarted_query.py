"""A query that a passing failure has ended is started again, unless no batch may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.blueprint import Blueprint
from penstock.engine.driver import query_launch
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.engine.driver.query_runtime import Query
from penstock.errors import QueryInterruptedError
from penstock.testing.local_engine import LocalQuery, LocalRuntime
from support.waiting import eventually


class Interrupted(LocalQuery):
    """A query that ends before some of its batches, or does not start."""

    launches = 0
    plan: Callable[[int, int], str] = staticmethod(lambda launch, batches: "")

    def _launch(self) -> None:
        Interrupted.launches += 1
        self.launch = Interrupted.launches
        if Interrupted.plan(self.launch, -1) == "start":
            raise QueryInterruptedError("job 'again' failed: Spark could not start a Python process")
        super()._launch()

    def _attempt(self, parts: object) -> object:  # type: ignore[override]
        if Interrupted.plan(self.launch, self.batches.report.batches) == "batch":
            raise QueryInterruptedError("job 'again' failed: a Python process did not connect")
        return super()._attempt(parts)  # type: ignore[arg-type]


class Runtime(LocalRuntime):
    """Runs such queries."""

    def query(self, blueprint: Blueprint, before: Query | None = None) -> Interrupted:
        return Interrupted(blueprint, before)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_launch, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Interrupted, "launches", 0)


def _start(
    folder: Path,
    plan: Callable[[int, int], str],
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str = "exactly-once",
) -> tuple[Handle, ps.MemorySink]:
    monkeypatch.setattr(Interrupted, "plan", staticmethod(plan))
    job = ps.Job("again", guarantee=guarantee)
    sink = ps.MemorySink()
    source = job.source("in", ps.MemorySource(range(20), max_records_per_batch=5))
    source >> job.task("same", lambda record: record) >> job.sink("out", sink)
    return start_job(job, Runtime, folder=folder), sink


def test_the_batches_go_on_after_a_restart_and_none_is_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(launch: int, batches: int) -> str:
        return "batch" if batches == launch else ""  # The n-th query ends before batch n.

    handle, sink = _start(tmp_path / "job", plan, monkeypatch)
    with handle:
        assert handle.wait("drained")
        assert handle.running
    assert sorted(record.value for record in sink.records) == list(range(20))
    assert handle.report.records_out == 20, "the report goes on"
    assert Interrupted.launches == 4


def test_a_job_that_does_not_start_at_once_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, sink = _start(tmp_path / "job", lambda launch, _: "start" if launch < 3 else "", monkeypatch)
    with handle:
        handle.wait("drained")
    assert len(sink.records) == 20


def test_restarts_without_a_batch_between_them_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(launch: int, batches: int) -> str:
        return "batch" if batches == 1 else "start" if launch == 3 else ""

    handle, sink = _start(tmp_path / "job", plan, monkeypatch)
    with pytest.raises(QueryInterruptedError, match="a Python process did not connect"), handle:
        handle.wait("drained")
    assert Interrupted.launches == 1 + len(query_launch.PAUSES)
    assert not handle.running
    assert len(sink.records) == 5

    again, sink = _start(tmp_path / "job", lambda launch, batches: "", monkeypatch)
    again.stop()


def test_at_most_once_no_query_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, sink = _start(
        tmp_path / "job", lambda _, batches: "batch" if batches == 1 else "", monkeypatch, "at-most-once"
    )
    with pytest.raises(QueryInterruptedError), handle:
        handle.wait("drained")
    assert Interrupted.launches == 1
    assert len(sink.records) == 5


def test_a_job_whose_query_waits_for_its_restart_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_launch, "PAUSES", (3600.0,))
    handle, _ = _start(tmp_path / "job", lambda _, batches: "batch" if batches == 1 else "", monkeypatch)

    def waits() -> bool:
        handle.check()
        return handle._restart_at is not None

    eventually("the query has ended", waits)
    assert handle.running
    handle.check()
    assert Interrupted.launches == 1
    with pytest.raises(QueryInterruptedError):
        handle.stop()
    assert not handle.running
