"""What a supervisor reads of the store: what concerns its node, however many others there are."""

from __future__ import annotations

import pytest
from store_support import has_stale_nodes

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import Epoch, NodeInfo, NodeJobs, NodeReport
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerInfo
from penstock.cluster.worker_supervision import ObservedProcess, Start
from penstock.coord import store_paths
from penstock.coord.coordination_store import DisconnectedError, StoredNode, Watcher
from penstock.replicas.replica_id import ReplicaId
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, replace

LEADER = Epoch(1, "m1", "", 0.0, lists_jobs=True)


class _CountingStore(MemoryStore):
    """Counts reads, and loses its connection at one of them."""

    reads = 0
    fail_at = ""

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        self.reads += 1
        if path == self.fail_at:
            raise DisconnectedError("told to fail")
        return super().get(path, watch)

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self.reads += 1
        return super().children(path, watch)


class _Processes:
    """The processes of a node, as a test says; notes what is done about them."""

    def __init__(self) -> None:
        self.seen: list[ObservedProcess] = []
        self.done: list[str] = []

    def look(self, now: float) -> list[ObservedProcess]:
        return list(self.seen)

    def start(self, start: Start, now: float) -> None:
        self.done.append(f"start {start.assignment.job}")
        self.seen.append(_instance(start.assignment.job, now))

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        self.done.append(f"end {instance.job}")

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        self.done.append(f"kill {instance.job}")

    def count(self, instance: ObservedProcess) -> None:
        return

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        return (0.0, 0, 0)

    def sample(self, now: float) -> MachineSample:
        return MachineSample(0.0, 0, 0, 0.0, 0.0)


def _instance(job: str, now: float) -> ObservedProcess:
    return ObservedProcess(job, "driver", 1, 1, 1, alive=True, started=now, heartbeat=now, phase="running")


class _World:
    """A supervisor of node n1, and others with jobs of their own."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.writer = MemoryStore(self.ensemble)
        self.store = _CountingStore(self.ensemble)
        self.processes = _Processes()
        info = NodeInfo("n1", "", 4, 8 << 30)
        self.supervisor = Supervisor(self.store, info, self.processes, self.processes)
        self.writer.create(store_paths.EPOCH, encode(LEADER))

    def assign(self, job: str, node: str) -> None:
        self.writer.create(f"{store_paths.ASSIGNMENTS}/{job}", encode(_assignment(job, node)))
        worker = WorkerInfo(job, 1, 1, node, 7, "running", 0.0)
        self.writer.create(store_paths.worker(job, 1, 1), encode(worker), ephemeral=True)

    def list(self, *jobs: str) -> None:
        path, data = f"{store_paths.NODE_JOBS}/n1", encode(NodeJobs("n1", jobs))
        if self.writer.get(path) is None:
            self.writer.create(path, data)
        else:
            self.writer.set(path, data)

    def progress(self, job: str, node: str) -> None:
        told = WorkerInfo(job, 1, 1, node, 7, "running", 0.0, progress=Progress(batches=9, at=1.0))
        self.writer.set(store_paths.worker(job, 1, 1), encode(told))

    def watches(self) -> int:
        own = self.store.session_id
        return sum(count for (session, _, _), count in self.ensemble.watches().items() if session == own)

    def woken(self) -> bool:
        woken = self.supervisor._wake.is_set()
        self.supervisor._wake.clear()
        return woken


def _assignment(job: str, node: str) -> Assignment:
    return make_assignment(job, 1, 1, 1, "b", "job.py", node, 1, 1 << 30)


def _cost(others: int) -> tuple[int, int]:
    world = _World()
    world.assign("mine", "n1")
    world.list("mine")
    for number in range(others):
        world.assign(f"other{number}", "n2")
    world.supervisor.step(1.0)
    assert world.processes.done == ["start mine"]
    return world.store.reads, world.watches()


def test_what_it_reads_and_watches_does_not_grow_with_the_jobs_of_other_nodes() -> None:
    assert _cost(3) == _cost(60)


def test_it_is_not_woken_by_other_nodes() -> None:
    world = _World()
    world.assign("mine", "n1")
    world.assign("other", "n2")
    world.list("mine")
    world.supervisor.step(1.0)
    world.woken()
    world.progress("other", "n2")
    world.assign("another", "n2")
    world.writer.delete(f"{store_paths.ASSIGNMENTS}/other")
    assert not world.woken()
    world.progress("mine", "n1")
    assert world.woken(), "a worker of an earlier version tells its progress like this"


def test_what_is_assigned_later_is_started_and_what_is_withdrawn_is_ended() -> None:
    world = _World()
    world.supervisor.step(1.0)
    assert world.processes.done == []
    world.assign("mine", "n1")
    world.list("mine")
    assert world.woken()
    world.supervisor.step(2.0)
    assert world.processes.done == ["start mine"]
    world.writer.delete(f"{store_paths.ASSIGNMENTS}/mine")
    world.list()
    assert world.woken()
    world.supervisor.step(3.0)
    assert world.processes.done == ["start mine", "end mine"]


def test_a_job_that_is_not_listed_is_not_taken_for_withdrawn() -> None:
    world = _World()
    world.assign("mine", "n1")
    world.processes.seen = [_instance("mine", 1.0)]
    world.supervisor.step(1.0)
    assert world.processes.done == []
    world.writer.delete(f"{store_paths.ASSIGNMENTS}/mine")
    world.supervisor.step(2.0)
    assert world.processes.done == ["end mine"], "its assignment says so"


@pytest.mark.parametrize("path", [f"{store_paths.ASSIGNMENTS}/mine", store_paths.worker("mine", 1, 1)])
def test_nothing_is_done_about_a_job_of_which_not_all_could_be_read(path: str) -> None:
    world = _World()
    world.supervisor.step(1.0)
    world.assign("mine", "n1")
    world.list("mine")
    world.processes.seen = [_instance("mine", 1.0)]
    world.store.fail_at = path
    with pytest.raises(DisconnectedError):
        world.supervisor.step(2.0)
    assert world.processes.done == []
    world.store.fail_at = ""
    world.supervisor.step(3.0)
    assert world.processes.done == []
    assert not has_stale_nodes(world.supervisor._mirror._mirror)


def test_with_a_leader_that_keeps_no_lists_all_assignments_are_followed() -> None:
    world = _World()
    world.writer.set(store_paths.EPOCH, encode(replace(LEADER, lists_jobs=False)))
    world.assign("mine", "n1")
    world.assign("other", "n2")
    world.supervisor.step(1.0)
    assert world.processes.done == ["start mine"]
    world.writer.set(store_paths.EPOCH, encode(replace(LEADER, number=2)))
    assert world.woken()
    world.supervisor.step(2.0)
    assert world.processes.done == ["start mine"], "the new leader has written no list yet"
    world.writer.set(store_paths.EPOCH, encode(replace(LEADER, number=3, lists_jobs=False)))
    world.assign("later", "n1")
    world.supervisor.step(3.0)
    assert world.processes.done == ["start mine", "start later"]


def test_past_jobs_are_followed_no_longer() -> None:
    world = _World()
    world.list("mine")
    world.assign("mine", "n1")
    world.processes.seen = [replace(_instance("past", 1.0), alive=False, died=1.0, counted=True)]
    world.supervisor.step(2.0)
    assert [world.supervisor._mirror.knows(ReplicaId(job)) for job in ("mine", "past")] == [True, True]
    world.supervisor.step(200.0)
    assert [world.supervisor._mirror.knows(ReplicaId(job)) for job in ("mine", "past")] == [True, False]


def test_the_place_of_a_worker_that_has_just_died_is_taken_back() -> None:
    world = _World()
    world.assign("past", "n1")
    world.writer.delete(f"{store_paths.ASSIGNMENTS}/past")
    world.processes.seen = [replace(_instance("past", 1.0), alive=False, died=1.0, outcome="stopped")]
    world.supervisor.step(2.0)
    assert world.writer.get(store_paths.worker("past", 1, 1)) is None


def test_a_report_has_the_progress_of_the_workers() -> None:
    world = _World()
    progress, joined = Progress(batches=9, at=1.0), ReplicaReport(8, 9)
    world.processes.seen = [replace(_instance("mine", 1.0), progress=progress, joined=joined)]
    world.assign("mine", "n1")
    world.supervisor.step(10.0)
    node = world.writer.get(f"{store_paths.REPORTS}/n1")
    assert node is not None
    [figures] = decode(NodeReport, node.data).workers
    assert (figures.progress, figures.joined) == (progress, joined)
