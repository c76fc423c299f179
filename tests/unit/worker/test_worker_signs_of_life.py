"""What a worker leaves in its folder for its supervisor: signs of life, and what it has done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import penstock as ps
from penstock.cluster.document_codec import encode
from penstock.coord import store_paths
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.batch_report import Report
from penstock.engine.driver.job_handle import Handle
from penstock.errors import JobFailedError
from penstock.keyring import open_keyring
from penstock.replicas.agreement.agreement_protocol import ReplicaSpec
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from penstock.worker.worker_lifecycle import Worker
from support.settings import make_assignment
from support.waiting import eventually

ASSIGNMENT = make_assignment("job", 1, 1, 1, "b", "job.py", "n1", 1, 1 << 30)


class _Dying:
    """A handle of a query that has committed three batches when it fails."""

    running = True
    lag = None

    def __init__(self) -> None:
        self.report = Report("job", {})

    def check(self) -> None:
        self.report.batches = 3
        raise JobFailedError("user code")

    def stop(self, *, drain_loops: bool = False) -> None:
        return


class _SlowEngine:
    """An engine whose start, and whose start of the job, take until the process has shown that it lives."""

    driver_url = ""
    app_id = "app"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shown: list[str] = []

    def _wait_for_a_sign(self, when: str) -> None:
        (self._folder / "pulse").unlink(missing_ok=True)
        eventually("a sign of life", (self._folder / "pulse").exists)
        self.shown.append(when)

    def open(self, job: ps.Job) -> None:
        self._wait_for_a_sign("the engine starts")

    def wait_for_executors(self, timeout: float, look: Callable[[], bool]) -> bool:
        return True

    def warm_up(self, job: ps.Job) -> bool:
        return True

    def answers(self) -> bool:
        return True

    def start(self, job: ps.Job, folder: Path, replica_spec: ReplicaSpec | None) -> Handle:
        self._wait_for_a_sign("the job starts")
        return cast(Handle, _Dying())


def _heartbeat(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "heartbeat").read_text())
    return found


def test_a_worker_shows_that_it_lives_while_it_starts_and_leaves_what_it_has_done(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    folder.mkdir()
    ensemble = MemoryEnsemble()
    MemoryStore(ensemble).create(f"{store_paths.ASSIGNMENTS}/job", encode(ASSIGNMENT))
    instance = WorkerConfig("job", "n1", "h", 1, 1, "c", "/", "k", str(tmp_path), "b", ASSIGNMENT)
    ring = open_keyring(tmp_path / "keys", create=True)
    engine = _SlowEngine(folder)
    worker = Worker(folder, instance, ring, lambda: MemoryStore(ensemble), lambda *_: engine)
    job = ps.Job("job")
    job.source("in", ps.MemorySource(["a"])) >> job.sink("out", ps.MemorySink())
    try:
        worker.begin()
        with pytest.raises(JobFailedError, match="user code"):
            worker.run(job)
    finally:
        worker.close()
    assert engine.shown == ["the engine starts", "the job starts"]
    assert (_heartbeat(folder)["phase"], _heartbeat(folder)["progress"]["batches"]) == ("running", 3)
