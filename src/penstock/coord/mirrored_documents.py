"""The documents of a cluster, read from a mirror of the store, and operations that remove a job's documents.

Each version of a document is decoded once.
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
"""Folders whose documents are named by jobs or replicas."""
_BY_REPLICA = (
    store_paths.ASSIGNMENTS,
    store_paths.WORKERS,
    store_paths.RESULTS,
    store_paths.FAILURES,
)
"""Those of them whose documents may be named by any replica."""

SINGLE_DOCUMENTS = (store_paths.EPOCH, store_paths.CLUSTER, store_paths.REVISIONS)
"""Paths of single documents, without children."""
_NOTES = (store_paths.REVISIONS,)
"""Those of them that decisions depend on: while one is unreadable, these decisions are not made."""
MASTER_DEPTHS = {
    **dict.fromkeys(MASTER_ROOTS, 1),
    **dict.fromkeys(SINGLE_DOCUMENTS, 0),
    store_paths.WORKERS: 2,
}
"""The number of levels below each root: the mirror does not request the children of the last level."""
QUIET_ROOTS = (store_paths.REPORTS,)
"""Roots that change all the time and do not require a decision at once."""


class Documents:
    """The documents of a mirrored tree. Unchanged documents are not decoded again."""

    def __init__(self, mirror: StoreMirror) -> None:
        self._mirror = mirror
        self._decoded: dict[str, tuple[bytes, object]] = {}
        self._faults: dict[str, str] = {}
        """By path, the reason why a document cannot be read."""
        self._cache = DocumentCache(
            mirror, self._forget, quiet=(*QUIET_ROOTS, store_paths.NODE_JOBS), by_replica=_BY_REPLICA
        )
        self._reported = ReportedProgress()
        self._reporting = threading.Lock()

    @property
    def news(self) -> int:
        """The number of changes so far that may require a decision."""
        return self._cache.news

    def one(self, kind: type[T], path: str) -> T | None:
        """Return the document at a path; None when it is missing or unreadable."""
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
        """Return all documents directly below a path, by name."""
        return self._cache.folder(root, lambda path: self.one(kind, path))

    def unreadable(self, root: str) -> dict[str, str]:
        """Return the reasons why documents directly below a path are unreadable, by name, as far as read."""
        return {
            path.rpartition("/")[2]: f"{path}: {reason}"
            for path, reason in sorted(self._faults.copy().items())
            if path.rpartition("/")[0] == root
        }

    def unreadable_jobs(self) -> dict[str, str]:
        """Return the jobs that have an unreadable document, with the reason, as far as read."""
        found: dict[str, str] = {}
        for path, reason in sorted(self._faults.copy().items()):
            for root in _ABOUT_JOBS:
                if path.startswith(f"{root}/"):
                    name = path[len(root) + 1 :].partition("/")[0]
                    found.setdefault(job_in(name), f"{path}: {reason}")
        return found

    def workers(self) -> dict[ReplicaId, tuple[WorkerInfo, ...]]:
        """Return the registered workers by job. Their progress may be outdated; see :meth:`shown`."""
        return self._cache.groups(
            store_paths.WORKERS, lambda path: self.one(WorkerInfo, path), is_same=same_but_progress
        )

    def shown(self, worker: WorkerInfo) -> WorkerInfo:
        """Return a worker with its latest progress, from its own document or from the report of its node."""
        with self._reporting:
            return self._newest_reports().added_to(worker)

    def progress_of(self, worker: WorkerInfo) -> Progress:
        """Return the latest progress of a worker, from the same sources."""
        with self._reporting:
            return self._newest_reports().of(worker)

    def _newest_reports(self) -> ReportedProgress:
        self._reported.update(self.all(NodeReport, store_paths.REPORTS), self.workers())
        return self._reported

    def replicas_in(
        self, root: str, documents: Mapping[ReplicaId, object], job: str
    ) -> tuple[ReplicaId, ...]:
        """Return the sorted replicas of a job that have documents below a root."""
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
        """Return the job specifications by job."""
        return self.all(JobSpec, store_paths.JOBS)

    def masters(self) -> dict[str, MasterInfo]:
        """Return the running masters."""
        return self.all(MasterInfo, store_paths.MASTERS)

    def node_jobs(self) -> dict[str, NodeJobs]:
        """Return the leader's list of jobs for each node."""
        return self.all(NodeJobs, store_paths.NODE_JOBS)

    def epoch(self) -> Epoch | None:
        """Return the latest epoch."""
        return self.one(Epoch, store_paths.EPOCH)

    def actual(self, absent: Callable[[ClusterState], dict[str, float]] | None = None) -> ClusterState:
        """Return the actual state of the cluster; ``absent`` adds since when nodes have been absent."""
        self.jobs()  # Read them, so that unreadable ones are known.
        state = ClusterState(
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
        state = replace(
            state,
            unreadable=self.unreadable_jobs(),
            unreadable_room=self._unreadable_reservations(),
            unreadable_nodes=self.unreadable(store_paths.NODES),
            unreadable_notes={path: reason for path in _NOTES if (reason := self.fault(path))},
            unreadable_alarms=frozenset(self.unreadable(store_paths.ALARMS)),
        )
        if absent is None:
            return state
        return replace(state, absent_since=absent(state))

    def _unreadable_reservations(self) -> tuple[ReservedResources, ...]:
        """Return the resources reserved by unreadable assignments, as far as these can be parsed."""
        names = self.unreadable(store_paths.ASSIGNMENTS)
        return tuple(
            reserved
            for name in names
            for reserved in reserved_resources(name, self.raw(f"{store_paths.ASSIGNMENTS}/{name}"))
        )

    def revisions(self) -> int | None:
        """Return the largest revision of forgotten jobs; None if it cannot be read.

        A new job starts with a larger revision.
        """
        known = self.one(Revisions, store_paths.REVISIONS)
        if known is not None:
            return known.largest
        return None if self.fault(store_paths.REVISIONS) else 0

    def fault(self, path: str) -> str:
        """Return why a document is unreadable; empty if it is readable, missing, or was not read yet."""
        reason = self._faults.get(path)
        return f"{path}: {reason}" if reason is not None else ""

    def names(self, root: str) -> list[str]:
        """Return the names directly below a path, also of unreadable documents."""
        return self._mirror.children(root)

    def raw(self, path: str) -> bytes:
        """Return the data of a mirrored node; empty when it does not exist."""
        node = self._mirror.get(path)
        return node.data if node is not None else b""

    def _with_progress(
        self, workers: dict[ReplicaId, tuple[WorkerInfo, ...]]
    ) -> dict[ReplicaId, tuple[WorkerInfo, ...]]:
        """Add the reported progress of those workers for which a decision needs it.

        These are replicas that catch up, and workers of jobs whose new code is still on probation.
        """
        updated = {name for name, spec in self.jobs().items() if spec.before is not None}
        needed = [
            replica
            for replica, group in workers.items()
            if replica.job in updated
            or any(worker.joined is not None and not worker.joined.in_step for worker in group)
        ]
        if not needed:
            return workers
        return {**workers, **{replica: tuple(map(self.shown, workers[replica])) for replica in needed}}

    def _forget(self, path: str) -> None:
        """Drop the cached data of a deleted node, because a cluster runs for years."""
        self._decoded.pop(path, None)
        self._faults.pop(path, None)

    def version(self, path: str) -> int | None:
        """Return the version of a mirrored node; None when it does not exist."""
        node = self._mirror.get(path)
        return node.version if node is not None else None


def _check_name(path: str) -> None:
    """Raise DocumentError if the name of a document about jobs is not that of a job or replica."""
    _, root, name, *_ = [*path.split("/"), ""]
    if f"/{root}" in _ABOUT_JOBS:
        replica = ReplicaId.find(name)
        if replica is None or (replica.index and f"/{root}" not in _BY_REPLICA):
            raise DocumentError(f"{name!r} is not the name of a job or replica")


def upsert(documents: Documents, path: str, data: bytes) -> Operation:
    """Return the operation that creates a node, or sets it if it still has the mirrored version."""
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
    """Return the operations that forget an ended job; rejected by the store if a worker of it is back."""
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
    if known is None:  # It became unreadable after the decision was made.
        raise ConflictError(f"not overwritten: {documents.fault(store_paths.REVISIONS)}")
    if largest <= known:
        return []
    return [upsert(documents, store_paths.REVISIONS, encode(Revisions(largest)))]
