"""The documents of a cluster, read from a mirror of the store, and the removal of a forgotten job's.

Each document is decoded once for each version. It decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.cluster_state import ClusterState, ReservedResources
from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus, Revisions, Tombstone
from penstock.cluster.job_retention import last_known_revision
from penstock.cluster.node_documents import Epoch, KnownNode, MasterInfo, NodeInfo, NodeJobs, NodeReport
from penstock.cluster.unreadable_documents import reserved_resources
from penstock.cluster.worker_documents import Failures, Progress, Result, WorkerInfo
from penstock.cluster.worker_progress import ReportedProgress, same_but_progress
from penstock.coord import store_paths
from penstock.coord.coordination_store import ConflictError, Create, Delete, Operation, Put
from penstock.coord.document_cache import DocumentCache
from penstock.coord.store_mirror import StoreMirror
from penstock.process_logs.process_log import get_logger
from penstock.replicas.replica_id import ReplicaId, job_in

T = TypeVar("T")

_log = get_logger(__name__)

MASTER_ROOTS = (
    store_paths.MASTERS,
    store_paths.EPOCH,
    store_paths.CLUSTER,
    store_paths.NODES,
    store_paths.REPORTS,
    store_paths.JOBS,
    store_paths.ASSIGNMENTS,
    store_paths.NODE_JOBS,
    store_paths.STATUS,
    store_paths.WORKERS,
    store_paths.RESULTS,
    store_paths.FAILURES,
    store_paths.ALARMS,
    store_paths.LOCATIONS,
    store_paths.KEPT,
    store_paths.TOMBSTONES,
    store_paths.REVISIONS,
    store_paths.KNOWN,
)

_ABOUT_JOBS = (
    store_paths.JOBS,
    store_paths.ASSIGNMENTS,
    store_paths.STATUS,
    store_paths.WORKERS,
    store_paths.RESULTS,
    store_paths.FAILURES,
    store_paths.LOCATIONS,
    store_paths.KEPT,
    store_paths.TOMBSTONES,
)
"""Where names are those of jobs and their replicas."""
_BY_REPLICA = (
    store_paths.ASSIGNMENTS,
    store_paths.WORKERS,
    store_paths.RESULTS,
    store_paths.FAILURES,
)
"""Those where a name may be that of any replica."""

SINGLE_DOCUMENTS = (store_paths.EPOCH, store_paths.CLUSTER, store_paths.REVISIONS)
"""Those that hold a document themselves, and nothing below it."""
_NOTES = (store_paths.REVISIONS,)
"""Those among them without which nothing is decided that depends on them."""
MASTER_DEPTHS = {
    **dict.fromkeys(MASTER_ROOTS, 1),
    **dict.fromkeys(SINGLE_DOCUMENTS, 0),
    store_paths.WORKERS: 2,
}
"""How many levels there are below each: what has nothing below it is not asked for that."""
QUIET_ROOTS = (store_paths.REPORTS,)
"""What changes all the time, and is no reason to decide anything at once."""


class Documents:
    """A mirrored tree as documents. What did not change is not decoded again."""

    def __init__(self, mirror: StoreMirror) -> None:
        self._mirror = mirror
        self._decoded: dict[str, tuple[bytes, object]] = {}
        self._faults: dict[str, str] = {}
        """By path, why a document cannot be read."""
        self._cache = DocumentCache(
            mirror, self._forget, quiet=(*QUIET_ROOTS, store_paths.NODE_JOBS), by_replica=_BY_REPLICA
        )
        self._reported = ReportedProgress()
        self._reporting = threading.Lock()

    @property
    def news(self) -> int:
        """How many changes have been read so far that somebody may have to decide on."""
        return self._cache.news

    def one(self, kind: type[T], path: str) -> T | None:
        """Return the document at a path, None when there is none that can be read."""
        node = self._mirror.get(path)
        if node is None:
            self._decoded.pop(path, None)
            self._faults.pop(path, None)
            return None
        known = self._decoded.get(path)
        if known is None or known[0] != node.data:
            try:
                _check_name(path)
                known = (node.data, decode(kind, node.data))
                self._faults.pop(path, None)
            except DocumentError as error:
                _log.error("document cannot be read", path=path, reason=str(error))
                known = (node.data, None)
                self._faults[path] = str(error)
            self._decoded[path] = known
        found = known[1]
        return found if isinstance(found, kind) else None

    def all(self, kind: type[T], root: str) -> dict[str, T]:
        """Return all documents right below a path, by name."""
        return self._cache.folder(root, lambda path: self.one(kind, path))

    def unreadable(self, root: str) -> dict[str, str]:
        """Return why documents right below a path cannot be read, by name, of those that were looked at."""
        return {
            path.rpartition("/")[2]: f"{path}: {reason}"
            for path, reason in sorted(self._faults.copy().items())
            if path.rpartition("/")[0] == root
        }

    def unreadable_jobs(self) -> dict[str, str]:
        """Return the jobs of which some document that was looked at cannot be read, and why."""
        found: dict[str, str] = {}
        for path, reason in sorted(self._faults.copy().items()):
            for root in _ABOUT_JOBS:
                if path.startswith(f"{root}/"):
                    name = path[len(root) + 1 :].partition("/")[0]
                    found.setdefault(job_in(name), f"{path}: {reason}")
        return found

    def workers(self) -> dict[ReplicaId, tuple[WorkerInfo, ...]]:
        """Return the workers that hold their place. Of their progress, :meth:`shown` knows more."""
        return self._cache.groups(
            store_paths.WORKERS, lambda path: self.one(WorkerInfo, path), is_same=same_but_progress
        )

    def shown(self, worker: WorkerInfo) -> WorkerInfo:
        """Return a worker with its progress as it was told last, by itself or by the report of its node."""
        with self._reporting:
            return self._newest_reports().added_to(worker)

    def progress_of(self, worker: WorkerInfo) -> Progress:
        """Return the progress of a worker as it was told last, likewise."""
        with self._reporting:
            return self._newest_reports().of(worker)

    def _newest_reports(self) -> ReportedProgress:
        self._reported.update(self.all(NodeReport, store_paths.REPORTS), self.workers())
        return self._reported

    def replicas_in(
        self, root: str, documents: Mapping[ReplicaId, object], job: str
    ) -> tuple[ReplicaId, ...]:
        """Return the replicas of a job that documents below a root are about, sorted."""
        return self._cache.replicas_by_job(root, documents).get(job, ())

    def assignments(self) -> dict[ReplicaId, Assignment]:
        """Return all assignments."""
        return self._of_replicas(Assignment, store_paths.ASSIGNMENTS)

    def failures(self) -> dict[ReplicaId, Failures]:
        """Return the failures of workers."""
        return self._of_replicas(Failures, store_paths.FAILURES)

    def results(self) -> dict[ReplicaId, Result]:
        """Return how workers have ended."""
        return self._of_replicas(Result, store_paths.RESULTS)

    def _of_replicas(self, kind: type[T], root: str) -> dict[ReplicaId, T]:
        return self._cache.replicas(root, lambda path: self.one(kind, path))

    def jobs(self) -> dict[str, JobSpec]:
        """Return what the users want."""
        return self.all(JobSpec, store_paths.JOBS)

    def masters(self) -> dict[str, MasterInfo]:
        """Return the masters that are up."""
        return self.all(MasterInfo, store_paths.MASTERS)

    def node_jobs(self) -> dict[str, NodeJobs]:
        """Return the jobs of each node, as the leader has listed them."""
        return self.all(NodeJobs, store_paths.NODE_JOBS)

    def epoch(self) -> Epoch | None:
        """Return the last epoch that was begun."""
        return self.one(Epoch, store_paths.EPOCH)

    def actual(self, absent: Callable[[ClusterState], dict[str, float]] | None = None) -> ClusterState:
        """Return what is the case; ``absent`` adds since when nodes have been missed."""
        self.jobs()  # So that it is known which of them cannot be read.
        seen = ClusterState(
            nodes=self.all(NodeInfo, store_paths.NODES),
            reports=self.all(NodeReport, store_paths.REPORTS),
            assignments=self.assignments(),
            workers=self._with_progress(self.workers()),
            results=self.results(),
            failures=self.failures(),
            statuses=self.all(JobStatus, store_paths.STATUS),
            alarms=self.all(Alarm, store_paths.ALARMS),
            locations=self.all(BackupLocation, store_paths.LOCATIONS),
            kept=self.all(BackupStatus, store_paths.KEPT),
            tombstones=self.all(Tombstone, store_paths.TOMBSTONES),
            revisions=self.revisions(),
            known=self.all(KnownNode, store_paths.KNOWN),
        )
        seen = replace(
            seen,
            unreadable=self.unreadable_jobs(),
            unreadable_room=self._unreadable_room(),
            unreadable_nodes=self.unreadable(store_paths.NODES),
            unreadable_notes={path: reason for path in _NOTES if (reason := self.fault(path))},
            unreadable_alarms=frozenset(self.unreadable(store_paths.ALARMS)),
        )
        if absent is None:
            return seen
        return replace(seen, absent_since=absent(seen))

    def _unreadable_room(self) -> tuple[ReservedResources, ...]:
        """Return what assignments that cannot be read take of nodes, as far as they tell."""
        names = self.unreadable(store_paths.ASSIGNMENTS)
        return tuple(
            room
            for name in names
            for room in reserved_resources(name, self.raw(f"{store_paths.ASSIGNMENTS}/{name}"))
        )

    def revisions(self) -> int | None:
        """Return the revision after which a job begins that is not known; None if it cannot be read."""
        known = self.one(Revisions, store_paths.REVISIONS)
        if known is not None:
            return known.largest
        return None if self.fault(store_paths.REVISIONS) else 0

    def fault(self, path: str) -> str:
        """Return why a document that was looked at cannot be read; nothing if it can, or is not there."""
        reason = self._faults.get(path)
        return f"{path}: {reason}" if reason is not None else ""

    def names(self, root: str) -> list[str]:
        """Return the names right below a path, whether or not what is there can be read."""
        return self._mirror.children(root)

    def raw(self, path: str) -> bytes:
        """Return what a node held when it was read; nothing when it was not there."""
        node = self._mirror.get(path)
        return node.data if node is not None else b""

    def _with_progress(
        self, workers: dict[ReplicaId, tuple[WorkerInfo, ...]]
    ) -> dict[ReplicaId, tuple[WorkerInfo, ...]]:
        """Add the reported progress of workers where a decision needs it.

        That is of replicas that catch up, and of jobs whose new code has not run well yet.
        """
        updated = {name for name, spec in self.jobs().items() if spec.before is not None}
        asked = [
            replica
            for replica, group in workers.items()
            if replica.job in updated
            or any(worker.joined is not None and not worker.joined.in_step for worker in group)
        ]
        if not asked:
            return workers
        return {**workers, **{replica: tuple(map(self.shown, workers[replica])) for replica in asked}}

    def _forget(self, path: str) -> None:
        """Drop what was kept of a node that is gone: a cluster runs for years."""
        self._decoded.pop(path, None)
        self._faults.pop(path, None)

    def version(self, path: str) -> int | None:
        """Return the version that a node had when it was read; None when it was not there."""
        node = self._mirror.get(path)
        return node.version if node is not None else None


def _check_name(path: str) -> None:
    """Raise DocumentError for a document about a job or replica that cannot have such a name."""
    _, root, name, *_ = [*path.split("/"), ""]
    if f"/{root}" in _ABOUT_JOBS:
        replica = ReplicaId.find(name)
        if replica is None or (replica.index and f"/{root}" not in _BY_REPLICA):
            raise DocumentError(f"{name!r} is not the name of a job or replica")


def upsert(documents: Documents, path: str, data: bytes) -> Operation:
    """Return what writes a node that is as it was last read, or makes it."""
    version = documents.version(path)
    return Create(path, data) if version is None else Put(path, data, version)


_OF_REPLICAS = (
    store_paths.RESULTS,
    store_paths.FAILURES,
    store_paths.WORKERS,
    store_paths.LOCATIONS,
    store_paths.KEPT,
)


def forget_operations(documents: Documents, job: str, *, data: bool, now: float) -> list[Operation]:
    """Return what forgets a job that is over; refused by the store when one of its workers is back."""
    revision = last_known_revision(job, documents.actual())
    removed = [f"{store_paths.JOBS}/{job}", f"{store_paths.STATUS}/{job}"]
    for root in _OF_REPLICAS:
        removed += [f"{root}/{name}" for name in documents.names(root) if job_in(name) == job]
    alarms = documents.all(Alarm, store_paths.ALARMS)
    removed += [f"{store_paths.ALARMS}/{id}" for id in sorted(alarms) if alarms[id].subject == job]
    versions = [(path, documents.version(path)) for path in removed]
    operations: list[Operation] = [Delete(path, version) for path, version in versions if version is not None]
    operations.append(
        upsert(documents, f"{store_paths.TOMBSTONES}/{job}", encode(Tombstone(job, revision, data, now)))
    )
    return operations


def revision_operations(documents: Documents, largest: int) -> list[Operation]:
    """Return the operations that record the largest revision of forgotten jobs, if it has grown.

    A new job of the same name starts above it; otherwise its worker would count as superseded.
    """
    known = documents.revisions()
    if known is None:  # The decision was made before it became unreadable.
        raise ConflictError(f"{documents.fault(store_paths.REVISIONS)} is not written over")
    if largest <= known:
        return []
    return [upsert(documents, store_paths.REVISIONS, encode(Revisions(largest)))]
