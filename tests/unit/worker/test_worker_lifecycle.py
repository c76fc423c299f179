"""What a worker that is a replica does from its start to its end, with queries that only pretend to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import penstock as ps
from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.worker_documents import WorkerInfo
from penstock.cluster.worker_policy import WorkerDecision
from penstock.coord import store_paths
from penstock.daemon import store_link
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.batch_report import Report
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import JobFailedError, ReplicaDivergedError, ReplicaOutdatedError
from penstock.keyring import open_keyring
from penstock.processes.process_priority import ProcessPriority
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Plan, ReplicaProgress, ReplicaSpec
from penstock.replicas.worker import replica_worker
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from penstock.worker import worker_lifecycle
from penstock.worker.worker_engine import SparkEngine
from penstock.worker.worker_lifecycle import Worker
from support.settings import make_assignment, replace
from support.waiting import eventually

ASSIGNMENT = make_assignment(
    "job~1", 1, 2, 1, "b", "job.py", "n1", 1, 1 << 30, membership=ReplicaAssignment(1)
)
PLACE = f"{store_paths.ASSIGNMENTS}/job~1"


@pytest.fixture(autouse=True)
def _telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers tell the store of their progress at once, where they would wait a minute."""
    monkeypatch.setattr(store_link, "_PROGRESS_SECONDS", 0.0)


class Pretended:
    """A handle of a query; ``ends`` is raised once it is looked at."""

    def __init__(self, ends: Exception | None) -> None:
        self.ends = ends
        self.report = Report("job", {})
        self.report.batches = 3
        self.stopped = False
        self.running = True
        self.lag = None

    def check(self) -> None:
        if self.ends is not None:
            raise self.ends

    def wait_for_batch(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.005))

    def stop(self, *, drain_loops: bool = False) -> None:
        self.stopped = True


@dataclass
class World:
    """A store, a shared folder with the first replica in it, and what queries of the worker come to."""

    folder: Path
    worker: Worker
    store: MemoryStore
    ends: list[Exception | None] = field(default_factory=list)
    started: list[tuple[Pretended, ReplicaSpec, int]] = field(default_factory=list)
    """Each with the last batch that was in its folder when it started."""

    def start(self, folder: Path, replica_spec: ReplicaSpec) -> Pretended:
        """Stand for :meth:`SparkEngine.start`."""
        handle = Pretended(self.ends.pop(0) if self.ends else None)
        self.started.append((handle, replica_spec, Ledger(folder / "ledger").latest_batch()))
        return handle

    def run(self) -> _Running:
        """Run the worker in a thread."""
        return _Running(self.worker)

    def info(self) -> WorkerInfo | None:
        """Return what the store knows of the worker."""
        node = self.store.get(store_paths.worker("job~1", 2, 1))
        return decode(WorkerInfo, node.data) if node is not None else None


class _Running:
    def __init__(self, worker: Worker) -> None:
        self.decision: WorkerDecision | None = None
        self.error: Exception | None = None
        self._worker = worker
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        job = ps.Job("job")
        source = job.source("in", ps.MemorySource(["a"]))
        source >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
        try:
            self._worker.begin()
            self.decision = self._worker.run(job)
        except Exception as error:
            self.error = error

    def end(self) -> WorkerDecision | None:
        """Ask the worker to stop, and return why it did."""
        self._worker.ask_to_stop(15, None)
        self._thread.join(10.0)
        assert not self._thread.is_alive()
        return self.decision

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        self._thread.join(10.0)
        assert not self._thread.is_alive()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    first = take_over(tmp_path / "cluster-jobs" / "job", Claim(1, 1))
    agreement = AgreementFolder(tmp_path / "agreements" / "job" / "0")
    agreement.create(Charter(0, {}))
    for batch in range(10):
        agreement.propose(Plan(batch, {"batch": batch + 1}, "job", 0.0))
        Ledger(first / "ledger").commit(LedgerEntry(batch, {"batch": batch + 1, "sources": {}}))
    world = _world(tmp_path, ASSIGNMENT)
    monkeypatch.setattr(SparkEngine, "start", _started_by(world))
    monkeypatch.setattr(Worker, "_start_engine", lambda *_: None)
    monkeypatch.setattr(worker_lifecycle, "_BEAT", 0.01)
    monkeypatch.setattr(worker_lifecycle, "_GOODBYE_SECONDS", 0.1)
    monkeypatch.setattr(replica_worker, "_REFRESH_SECONDS", 0.0)
    yield world
    world.worker.ask_to_stop(15, None)
    world.worker.close()


def _world(folder: Path, assignment: Assignment) -> World:
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble)
    store.create(PLACE, encode(assignment))
    instance_folder = folder / "instance"
    instance_folder.mkdir(exist_ok=True)
    instance = WorkerConfig("job~1", "n1", "h", 2, 1, "c", "/", "k", str(folder), "b", assignment)
    ring = open_keyring(folder / "keys", create=True)
    return World(folder, Worker(instance_folder, instance, ring, lambda: MemoryStore(ensemble)), store)


def _started_by(world: World) -> Callable[..., Pretended]:
    """Return a method that has a world start jobs."""

    def start(engine: SparkEngine, job: ps.Job, folder: Path, replica_spec: ReplicaSpec) -> Pretended:
        return world.start(folder, replica_spec)

    return start


def _stray(batch: int) -> ReplicaDivergedError:
    return ReplicaDivergedError("job", batch, "out", "job", "it differs")


def test_a_replica_that_strays_begins_again_from_the_other(world: World) -> None:
    world.ends = [_stray(4)]
    running = world.run()
    eventually("the job is started again", lambda: len(world.started) == 2)
    eventually("the replica says that it differed, and is where the other is", lambda: _told(world) == (9, 4))
    info = world.info()
    assert info is not None
    assert (info.phase, info.progress.batches) == ("running", 6), "what was done before counts"
    assert [last for _, _, last in world.started] == [-1, 9]
    assert world.started[0][0].stopped
    assert running.end() is not None
    assert running.error is None


def _told(world: World) -> tuple[int, int] | None:
    """Return the last batch of the replica, and that in which it differed, as the store knows them."""
    info = world.info()
    joined = info.joined if info is not None else None
    return (
        (joined.batch, joined.differed.batch) if joined is not None and joined.differed is not None else None
    )


def test_nobody_waits_for_a_replica_that_has_left(world: World) -> None:
    agreement = AgreementFolder(world.folder / "agreements" / "job" / "0")
    agreement.report_progress(ReplicaProgress("job~1", 7, 0.0))
    running = world.run()
    eventually("the job is started", lambda: len(world.started) == 1)
    assert "job~1" in agreement.replica_progress()
    running.end()
    assert "job~1" not in agreement.replica_progress()


def test_a_replica_never_says_that_it_runs_without_saying_where(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[WorkerInfo] = []
    monkeypatch.setattr(StoreLink, "tell", lambda _, info: told.append(info))
    running = world.run()
    eventually("the worker says that it runs", lambda: any(info.phase == "running" for info in told))
    running.end()
    assert {info.joined.head for info in told if info.phase == "running" and info.joined} == {9}


@pytest.mark.parametrize("running", [False, True])
def test_a_replica_gives_way_to_others_until_it_comes_in(
    world: World, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(ProcessPriority, "lower", lambda _: happened.append("gives way"))
    monkeypatch.setattr(Worker, "_start_engine", lambda *_: happened.append("starts Spark"))
    monkeypatch.setattr(ProcessPriority, "restore", lambda _: happened.append("does not"))
    if running:
        agreement = AgreementFolder(world.folder / "agreements" / "job" / "0")
        agreement.report_progress(ReplicaProgress("job", 9, time.time()))
    worker = world.run()
    eventually("the job is started", lambda: world.started)
    worker.end()
    assert happened == [*(["gives way"] if running else []), "starts Spark", "does not"]


def test_a_replica_that_is_far_behind_begins_again_without_an_alarm(world: World) -> None:
    world.ends = [ReplicaOutdatedError("batch 3 is history")]
    running = world.run()
    eventually("the job is started again", lambda: len(world.started) == 2)
    running.end()
    info = world.worker._info
    assert info.joined is not None
    assert info.joined.differed is None


def test_a_replica_that_strays_again_and_again_fails(world: World) -> None:
    world.ends = [_stray(batch) for batch in range(10)]
    running = world.run()
    running.wait()
    assert isinstance(running.error, JobFailedError)
    assert "had to be rebuilt" in str(running.error)
    assert len(world.started) == replica_worker.MOST_REBUILDS + 1


def test_other_errors_end_it(world: World) -> None:
    world.ends = [JobFailedError("user code")]
    running = world.run()
    running.wait()
    assert str(running.error) == "user code"
    assert len(world.started) == 1


def test_a_replica_that_strays_while_it_is_stopped_leaves_word(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Pretended, *, drain_loops: bool = False) -> None:
        raise _stray(9)

    monkeypatch.setattr(Pretended, "stop", stop)
    running = world.run()
    eventually("the job is started", lambda: world.started)
    decision = running.end()
    assert running.error is None
    assert decision is not None
    assert decision.outcome == "stopped"
    assert world.worker.place is not None
    assert (world.worker.place / "strayed").exists()


def test_who_stands_by_is_ready_and_runs_when_it_is_told_to(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = replace(ASSIGNMENT, membership=ReplicaAssignment(1, runs=False))
    standby = _world(tmp_path, waiting)
    monkeypatch.setattr(SparkEngine, "start", _started_by(standby))
    running = standby.run()
    try:
        eventually(
            "the standby has batch 9",
            lambda: (info := standby.info()) is not None and info.joined and info.joined.batch == 9,
        )
        info = standby.info()
        assert info is not None
        assert info.phase == "ready"
        assert standby.started == []
        standby.store.set(PLACE, encode(replace(waiting, membership=ReplicaAssignment(1, runs=True))))
        eventually("the standby starts the job", lambda: standby.started)
        assert [last for _, _, last in standby.started] == [9]
        eventually(
            "the replica runs", lambda: (info := standby.info()) is not None and info.phase == "running"
        )
    finally:
        running.end()
        standby.worker.close()
    assert running.error is None


def test_who_stands_by_leaves_when_the_job_is_ended(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = _world(tmp_path, replace(ASSIGNMENT, membership=ReplicaAssignment(1, runs=False)))
    monkeypatch.setattr(SparkEngine, "start", _started_by(standby))
    running = standby.run()
    eventually(
        "the standby has batch 9",
        lambda: (info := standby.info()) is not None and info.joined and info.joined.batch == 9,
    )
    standby.store.delete(PLACE)
    running.wait()
    standby.worker.close()
    assert running.decision is not None
    assert (running.decision.outcome, running.decision.final) == ("stopped", True)
    assert standby.started == []


def test_who_waits_for_the_first_leaves_when_it_is_asked_to(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _world(tmp_path, replace(ASSIGNMENT, membership=ReplicaAssignment(1, lineage=1)))
    monkeypatch.setattr(SparkEngine, "start", _started_by(other))
    running = other.run()
    eventually("the replica has a place", lambda: other.worker.place is not None)
    decision = running.end()
    other.worker.close()
    assert decision is not None
    assert decision.outcome == "stopped"
    assert other.started == []
