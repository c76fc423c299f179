"""A clean stop: for how long it waits for the batch that runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

import penstock as ps
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.driver import query_runtime
from penstock.engine.driver.job_start import start_job
from penstock.engine.storage.job_folder import JobFolders
from penstock.log import Log, log_folder
from penstock.testing.local_engine import LocalRuntime
from support.waiting import DEADLINE, eventually


class Busy(query_runtime.Query):
    """Has a batch that ends after a while, or never: then the planner answers that it has stopped."""

    cut_off: bool | None = None

    def _launch(self) -> None:
        if self.blueprint.guarantee == "at-most-once":
            Timer(0.5, self.blueprint.folders.stop_answer.touch).start()

    def _is_alive(self) -> bool:
        return True

    def _end(self) -> None:
        self.cut_off = not self.blueprint.folders.stop_answer.exists()


def _drawn(folder: Path, guarantee: str) -> Blueprint:
    job = ps.Job("busy")
    job.source("in", ps.MemorySource()) >> job.sink("out", ps.MemorySink())
    drawn = replace(make_blueprint(job, folder=folder, buckets=1, sides={}), guarantee=guarantee)
    drawn.folders.create()
    return drawn


@pytest.mark.parametrize(("guarantee", "cut_off"), [("exactly-once", True), ("at-most-once", False)])
def test_only_a_batch_that_is_repeated_may_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str, cut_off: bool
) -> None:
    """At most once nobody repeats it: a clean stop would lose what it has read."""
    monkeypatch.setattr(query_runtime, "_STOP_SECONDS", 0.05)
    query = Busy(_drawn(tmp_path, guarantee))
    query.start(None)
    query.stop()
    assert query.cut_off is cut_off


class Forgetful(ps.LogSource):
    """Cannot take note of how far it was read, which it finds out when the job is being stopped."""

    def __init__(self, job_folder: Path) -> None:
        super().__init__("in")
        self._stop_request = JobFolders(str(job_folder)).stop_request

    def committed(self, position: dict[str, int], reader: str) -> None:
        eventually("the job is being stopped", self._stop_request.exists, every=0.01)
        raise OSError("nobody takes notes any more")


def test_a_batch_that_fails_while_the_job_is_stopped_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is processed by then, so that a run until drained would end as if nothing was wrong."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    Log.create(log_folder("in")).append([ps.Record("a", 1)])
    job = ps.Job("told")
    job.source("in", Forgetful(tmp_path / "job")) >> job.sink("out", ps.LogSink("out"))
    handle = start_job(job, lambda: LocalRuntime(1), folder=tmp_path / "job")
    assert handle.wait("drained", timeout=DEADLINE)
    with pytest.raises(ps.ConnectorError, match=r"'in'.*takes notes"):
        handle.stop()
    handle.stop()


class Dying(Busy):
    """Has failed, and takes a moment to end."""

    looks = 0

    def _is_alive(self) -> bool:
        self.looks += 1
        return self.looks < 4

    def _end(self) -> None:
        self.looks_before_end = self.looks


def test_a_failed_query_ends_by_itself_before_it_is_stopped(tmp_path: Path) -> None:
    """Spark searches the failure of a query that is being stopped with a pattern that overflows its stack."""
    query = Dying(_drawn(tmp_path, "exactly-once"))
    query.start(None)
    query.abandon()
    assert query.looks_before_end == 4
