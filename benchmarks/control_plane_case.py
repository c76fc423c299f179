"""The control plane of a large cluster on the store in memory: what a leader and a supervisor cost.

Master and supervisor are the real ones. The other supervisors and all workers are simulated: they write what
real ones would, as often as real ones would. Time is virtual, processor time is real: a daemon whose steps
took 0.2 s of processor time within 2 s of virtual time has used 10 % of a core.

``python -m benchmarks.control_plane_case NODES JOBS`` prints the figures as JSON. The same file runs on older
revisions of the code, so that figures before and after a change are those of one program.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.leader_actions import SetStatus
from penstock.cluster.node_documents import MasterInfo, NodeInfo, NodeReport
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import Progress, WorkerFigures, WorkerInfo
from penstock.coord import store_paths
from penstock.coord.coordination_store import Store, StoredNode, Watcher
from penstock.daemon import step_loop, store_link
from penstock.daemon.worker_folder import HEARTBEAT_FILE
from penstock.job_settings import JobSettings, Replicas
from penstock.keyring import Keyring
from penstock.master.cluster_metrics import render
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.node_instances import FolderInstances
from penstock.supervisor.node_instances import NodeSettings as NodeFolders
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.fake_processes import FakeProcesses
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore

BUNDLE = "b" * 64
REPORT_SECONDS = 3.0
BEAT_SECONDS = 1.0
BATCHES_PER_SECOND = 2
MOST_ENDED = 1000
"""So many jobs that are over are kept by default: there are as many as busy ones, up to this."""
SLICE = 0.02
"""Virtual seconds between two looks at who has something to do."""
STRUCTURE = {"name": "", "vertices": [{"name": f"v{n}", "kind": "task", "of": "x" * 40} for n in range(8)]}
REPORTED = "progress" in {field.name for field in fields(WorkerFigures)}
"""Whether supervisors report the progress of their workers."""
TOLD_SECONDS = store_link._PROGRESS_SECONDS
"""How often a worker writes its progress itself."""


class Deferred(MemoryStore):
    """A store that counts reads, and whose watches are delivered when its owner is measured."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.news: list[Watcher] = []
        self.reads = 0
        self.round_trips = 0
        self._within = False
        super().__init__(ensemble, session_seconds=1e9, deliver=self.news.append)

    def deliver_all(self) -> None:
        """Call the watchers of what has changed."""
        while self.news:
            news, self.news[:] = self.news[:], []
            for watcher in news:
                watcher()

    def _count(self) -> None:
        self.reads += 1
        self.round_trips += not self._within

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        self._count()
        return super().get(path, watch)

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._count()
        return super().children(path, watch)

    def get_many(self, reads: Any) -> Any:
        return self._together(super().get_many, reads)

    def children_many(self, reads: Any) -> Any:
        return self._together(super().children_many, reads)

    def _together(self, read: Callable[[Any], Iterator[Any]], reads: Any) -> Iterator[Any]:
        self.round_trips += 1
        self._within = True
        try:
            yield from read(reads)
        finally:
            self._within = False


@dataclass
class Daemon:
    """Steps as ``run_step_loop`` has a daemon do, in virtual time."""

    store: Deferred
    step: Callable[[float], None]
    wake: Any
    tick: float
    free_at: float = 0.0
    next_tick: float = 0.0
    used: float = 0.0
    steps: int = 0

    def turn(self, now: float) -> None:
        """Do a step if there is one to do, and note the processor time."""
        began = time.process_time()
        self.store.deliver_all()
        if now >= self.free_at and (self.wake.is_set() or now >= self.next_tick):
            self.wake.clear()
            self.step(now)
            self.store.deliver_all()
            self.steps += 1
            took = time.process_time() - began
            self.next_tick = now + took + self.tick
            self.free_at = now + took + _pause_after(took)
        self.used += time.process_time() - began


def _pause_after(seconds: float) -> float:
    pause_after = getattr(step_loop, "pause_after", None)
    return float(pause_after(seconds)) if pause_after is not None else 0.0


class _Sampler:
    def sample(self, now: float) -> MachineSample:  # noqa: ARG002
        return MachineSample(0.5, 1 << 30, 4 << 30, 1e6, 1e6)


class Cluster:
    """Nodes with an equal share of jobs, all of which run and are busy, and jobs that are over."""

    def __init__(self, nodes: int, jobs: int, work: Path) -> None:
        self.now = time.time()
        self.ensemble = MemoryEnsemble(self.now)
        self.writer = MemoryStore(self.ensemble, session_seconds=1e9)
        self.work = work
        self.nodes = [f"n{number:04d}" for number in range(nodes)]
        self.jobs = {f"job{n:05d}": self.nodes[n % nodes] for n in range(jobs)}
        self.here = [job for job, node in self.jobs.items() if node == self.nodes[0]]
        self.on: dict[str, list[str]] = {}
        for job, node in self.jobs.items():
            self.on.setdefault(node, []).append(job)
        self.began = self.now
        self._fill()

    def _fill(self) -> None:
        write = self.writer.create
        for name in self.nodes[1:]:
            write(
                f"{store_paths.NODES}/{name}",
                encode(NodeInfo(name, "10.0.0.1", 16, 64 << 30)),
                ephemeral=True,
            )
            write(f"{store_paths.REPORTS}/{name}", encode(self.report(name)), ephemeral=True)
        for job, node in self.jobs.items():
            spec = JobSpec(job, BUNDLE, "job.py", structure=dict(STRUCTURE, name=job), submitted=self.now)
            write(f"{store_paths.JOBS}/{job}", encode(spec))
            write(f"{store_paths.ASSIGNMENTS}/{job}", encode(_assignment(job, node, self.now)))
            write(
                f"{store_paths.STATUS}/{job}", encode(JobStatus("RUNNING", f"running on {node}", self.now, 1))
            )
            write(store_paths.worker(job, 1, 1), encode(self.info(job)), ephemeral=True)
        for number in range(min(len(self.jobs), MOST_ENDED)):
            job = f"ended{number:05d}"
            spec = JobSpec(job, BUNDLE, "job.py", structure=dict(STRUCTURE, name=job), wanted="ended")
            write(f"{store_paths.JOBS}/{job}", encode(spec))
            write(f"{store_paths.STATUS}/{job}", encode(JobStatus("ENDED", "it was killed", self.now, 1)))

    def progress(self) -> Progress:
        batches = int((self.now - self.began) * BATCHES_PER_SECOND) + 1000
        return Progress(batches, batches * 5000, batches * 4000, lag=12, batch_seconds=0.41, at=self.now)

    def info(self, job: str) -> WorkerInfo:
        return WorkerInfo(job, 1, 1, self.jobs[job], 4711, "running", self.began, progress=self.progress())

    def report(self, node: str) -> NodeReport:
        told: dict[str, Any] = {"progress": self.progress()} if REPORTED else {}
        figures = tuple(
            WorkerFigures(job, "driver", 1, 1, 4711, "LIVE|running", 0.5, 1 << 30, self.began, **told)
            for job in self.on.get(node, ())
        )
        return NodeReport(self.now, 0.5, 1 << 30, 4 << 30, 1e6, 1e6, figures, 1 << 40)

    def master(self, store: Store, name: str = "m1") -> Master:
        return Master(store, MasterInfo(name, "", 1, self.now, ""), clock=lambda: self.now)

    def supervisor(self, store: Store) -> Supervisor:
        name = self.nodes[0]
        node = NodeFolders(name, "", self.work, self.work / "storage", self.work, "zk:1", "/penstock")
        processes = FakeProcesses(now=lambda: self.now)
        instances = FolderInstances(node, processes, Keyring(bytes(32)), lambda sha256: self.work / sha256)
        info = NodeInfo(name, "10.0.0.1", 16, 64 << 30)
        return Supervisor(store, info, instances, _Sampler(), clock=lambda: self.now)

    def beat(self) -> None:
        """Write the heartbeats of the workers of the node that is measured."""
        for job in self.here:
            path = self.work / "instances" / f"{job}-driver-000001-0001" / HEARTBEAT_FILE
            path.write_bytes(encode(self.info(job)))
            os.utime(path, (self.now, self.now))

    def run(self, daemons: Sequence[Daemon], seconds: float) -> None:
        """Let all be busy for a while."""
        jobs, nodes = list(self.jobs), self.nodes[1:]
        told = reported = 0.0
        beaten, end, began = self.now - BEAT_SECONDS, self.now + seconds, self.now
        while self.now < end:
            passed = self.now - began
            while told < passed / TOLD_SECONDS * len(jobs):
                job = jobs[int(told) % len(jobs)]
                self.writer.set(store_paths.worker(job, 1, 1), encode(self.info(job)))
                told += 1
            while reported < passed / REPORT_SECONDS * len(nodes):
                node = nodes[int(reported) % len(nodes)]
                self.writer.set(f"{store_paths.REPORTS}/{node}", encode(self.report(node)))
                reported += 1
            if self.now - beaten >= BEAT_SECONDS:
                self.beat()
                beaten = self.now
            for daemon in daemons:
                daemon.turn(self.now)
            self.now += SLICE


def _assignment(job: str, node: str, now: float, membership: ReplicaAssignment | None = None) -> Assignment:
    return Assignment(
        *(job, 1, 1, 1, BUNDLE, "job.py", node),
        forget=0,
        membership=membership,
        reason="it was submitted",
        since=now,
    )


def measure(nodes: int, jobs: int, work: Path, seconds: float = 6.0) -> dict[str, float]:
    """Return all figures of a cluster of one size."""
    cluster = Cluster(nodes, jobs, work)
    found: dict[str, float] = {}
    store, supervisor_store = Deferred(cluster.ensemble), Deferred(cluster.ensemble)
    master = cluster.master(store)
    master.step(cluster.now)  # It makes the roots, is elected, and reads everything.
    for _ in range(5):
        store.deliver_all()
        cluster.now += 2.0
        master.step(cluster.now)
    found |= _cold_start(cluster)
    supervisor = cluster.supervisor(supervisor_store)
    began = time.process_time()
    supervisor.step(cluster.now)
    found["supervisor cold start, seconds"] = time.process_time() - began
    found["supervisor cold start, reads"] = supervisor_store.reads
    cluster.beat()
    leader = Daemon(store, master.step, master._wake, master.settings.tick)
    one = Daemon(supervisor_store, supervisor.step, supervisor._wake, supervisor.settings.tick)
    cluster.run([leader, one], 3.0)
    leader.used = one.used = 0.0
    leader.steps = one.steps = 0
    gc.collect()
    cluster.run([leader, one], seconds)
    found["leader, share of a core"] = leader.used / seconds
    found["supervisor, share of a core"] = one.used / seconds
    found["leader, steps a second"] = leader.steps / seconds
    found["supervisor, steps a second"] = one.steps / seconds
    session = supervisor_store.session_id
    found["supervisor, watches"] = sum(
        count for (owner, _, _), count in cluster.ensemble.watches().items() if owner == session
    )
    service: Any = ClusterService(master, None, None)  # type: ignore[arg-type]
    found["list, seconds"] = _timed(lambda: json.dumps(service.jobs()))
    found["metrics, seconds"] = _timed(lambda: render(master.documents, leads=True, connected=True))
    listed = [job for job in service.jobs() if job["phase"] != "ENDED"]
    assert len(listed) == jobs
    assert all(job["phase"] == "RUNNING" and job["progress"]["batches"] > 1000 for job in listed)
    return found


def _cold_start(cluster: Cluster) -> dict[str, float]:
    store = Deferred(cluster.ensemble)
    other = cluster.master(store, "m2")
    began = time.process_time()
    other.step(cluster.now)
    took = time.process_time() - began
    figures = {"seconds": took, "reads": store.reads, "round trips": store.round_trips}
    store.close()
    return {f"master cold start, {what}": value for what, value in figures.items()}


def _timed(call: Callable[[], object], least: int = 3) -> float:
    runs: list[float] = []
    while len(runs) < least and sum(runs) < 20.0:
        began = time.process_time()
        call()
        runs.append(time.process_time() - began)
    return median(runs)


def replicated(nodes: int, members: int) -> float:
    """Return the processor time of deciding that nothing is to be done about jobs with k=1."""
    now = time.time()
    names = [f"n{number:04d}" for number in range(nodes)]
    specs: dict[str, JobSpec] = {}
    assignments: dict[ReplicaId, Assignment] = {}
    workers: dict[ReplicaId, tuple[WorkerInfo, ...]] = {}
    for number in range(members // 2):
        job = f"job{number:05d}"
        settings = JobSettings(replicas=Replicas(k=1))
        specs[job] = JobSpec(job, BUNDLE, "job.py", settings=settings, agreed=True, structure=STRUCTURE)
        for replica in range(2):
            id, name = ReplicaId(job, replica), str(ReplicaId(job, replica))
            node = names[(number * 2 + replica) % nodes]
            assignments[id] = _assignment(name, node, now, ReplicaAssignment(replica))
            workers[id] = (_replica(name, node, now),)
    infos = {name: NodeInfo(name, "", 16, 64 << 30) for name in names}
    actual = ClusterState(nodes=infos, assignments=assignments, workers=workers)
    placer = JobPlacer()
    actions = reconcile(specs, actual, now, epoch=1, placer=placer)
    statuses = {action.job: action.status for action in actions if isinstance(action, SetStatus)}
    actual = replace(actual, statuses=statuses)
    assert not reconcile(specs, actual, now, epoch=1, placer=placer), "there is nothing to do"
    return _timed(lambda: reconcile(specs, replace(actual), now, epoch=1, placer=placer))


def _replica(name: str, node: str, now: float) -> WorkerInfo:
    from penstock.cluster.worker_documents import ReplicaReport

    return WorkerInfo(name, 1, 1, node, 1, "running", now, joined=ReplicaReport(100, 100, 0))


def main(arguments: Sequence[str]) -> int:
    """Print the figures for NODES and JOBS."""
    nodes, jobs = int(arguments[0]), int(arguments[1])
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as work:
        found = measure(nodes, jobs, Path(work))
    found["quiet reconcile with replicas, seconds"] = replicated(nodes, jobs * 4 // 5)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
