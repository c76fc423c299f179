"""A leader on the store in memory, with nodes, and replicas of jobs that say what a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from without_code import AnyBundle

from penstock.cluster.client_requests import Submission
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.cluster.worker_documents import (
    Difference,
    Failures,
    Progress,
    ReplicaReport,
    Result,
    WorkerInfo,
)
from penstock.coord import store_paths
from penstock.coord.mirrored_documents import Documents
from penstock.job_settings import Replicas
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.replicas.replica_id import ReplicaId
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, make_spec, make_submission, replace


class Lines:
    """Logs that have been written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def read(self, job: str, nodes: Mapping[str, NodeInfo], cursor: str, limit: int) -> dict[str, Any]:
        return {"lines": list(self.lines), "cursor": ""}


class Cluster:
    """Nothing is decided here: what is the case is what a test writes, so that only the service acts."""

    def __init__(self, nodes: int = 3, racks: int = 1) -> None:
        self.store = MemoryStore(MemoryEnsemble())
        self.master = Master(self.store, MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
        self.logs = Lines()
        self.service = ClusterService(self.master, AnyBundle(), self.logs, lambda: 1.0)
        for _ in range(3):
            self.master.step(1.0)
        for number in range(nodes):
            name = f"n{number}"
            self.put(f"{store_paths.NODES}/{name}", NodeInfo(name, "", 4, 8 << 30, rack=f"r{number % racks}"))

    def put(self, path: str, document: Any) -> None:
        """Write a document, whatever was there."""
        parent = path.rpartition("/")[0]
        if self.store.get(parent) is None:
            self.store.create(parent)
        if self.store.get(path) is None:
            self.store.create(path, encode(document))
        else:
            self.store.set(path, encode(document))
        self.look()

    def look(self) -> None:
        """Let the master see what is there, and decide nothing."""
        self.master._mirror.refresh()

    def job(self, name: str = "job", phase: str = "RUNNING", revision: int = 1, **more: Any) -> JobSpec:
        """Have a job."""
        given = {"wanted": "ended" if phase == "ENDED" else "running", "structure": code(name), **more}
        spec = make_spec(name, "a" * 64, "job.py", **given)
        self.put(f"{store_paths.JOBS}/{name}", spec)
        self.put(f"{store_paths.STATUS}/{name}", JobStatus(phase, "", 0.0, revision))
        return spec

    def member(
        self,
        number: int,
        node: str = "",
        *,
        job: str = "job",
        revision: int = 0,
        phase: str = "running",
        joined: ReplicaReport | None = None,
        records: int = 0,
        after: int = 0,
        assign: bool = True,
    ) -> None:
        """Have a replica on a node, with a worker unless it has no phase; or the worker alone."""
        name, node, revision = str(ReplicaId(job, number)), node or f"n{number}", revision or number + 1
        made = make_assignment(name, 1, revision, 1, "a" * 64, "job.py", node, 1, 1 << 30, after=after)
        if assign:
            self.put(f"{store_paths.ASSIGNMENTS}/{name}", replace(made, reason=f"it fits {node}"))
        if phase:
            progress = Progress(records_in=records, at=5.0)
            worker = WorkerInfo(name, revision, 1, node, 7, phase, 2.0, progress=progress, joined=joined)
            self.put(f"{store_paths.WORKERS}/{name}/{revision}-1", worker)

    def fail(self, number: int, count: int, revision: int, job: str = "job") -> None:
        """Have a replica's worker die."""
        name = str(ReplicaId(job, number))
        self.put(f"{store_paths.FAILURES}/{name}", Failures(name, revision, count, "it died", "n1", 3.0))

    def end(self, number: int, outcome: str, revision: int, at: float, job: str = "job") -> None:
        """Have a replica's worker end."""
        name = str(ReplicaId(job, number))
        self.put(f"{store_paths.RESULTS}/{name}", Result(name, revision, outcome, f"by {number}", at))

    @property
    def documents(self) -> Documents:
        self.look()
        return self.master.documents

    def spec(self, name: str = "job") -> JobSpec:
        """What is wanted now."""
        return self.documents.jobs()[name]

    def status(self, name: str = "job") -> JobStatus:
        """How it stands."""
        found = self.documents.one(JobStatus, f"{store_paths.STATUS}/{name}")
        assert found is not None
        return found


def code(name: str = "job", **says: Any) -> dict[str, Any]:
    """What a job's code says."""
    replicas = {each: says.pop(each) for each in list(says) if each in vars(Replicas())}
    return {"name": name, "vertices": [], "replicas": replicas, **says}


def submission(structure: Mapping[str, Any] | None = None, **says: Any) -> Submission:
    """A submission of code, and what is said over it."""
    return make_submission("job.py", structure or code(), **says)


def joined(
    batch: int, head: int, since: int = 0, *, whole: bool = True, differs: bool = False
) -> ReplicaReport:
    """How a replica stands."""
    differed = Difference(3, "count", "job", "it counted otherwise", 2.0) if differs else None
    return ReplicaReport(batch, head, since, whole, differed)
