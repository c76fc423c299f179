"""The status of a job with replicas: its leading worker, the state of each replica, its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from penstock.cluster.cluster_state import is_current_revision, newest
from penstock.cluster.job_documents import OVER, JobSpec, JobStatus
from penstock.cluster.worker_documents import Result, WorkerInfo
from penstock.coord import store_paths
from penstock.coord.mirrored_documents import Documents
from penstock.replicas.decisions.replica_set import is_replicated, replica_count
from penstock.replicas.replica_id import ReplicaId

_DRAINED = "drained"


T = TypeVar("T")


def of_first_replica(found: Mapping[ReplicaId, T], job: str) -> T | None:
    """Return what is found of a job's first replica.

    Documents that cannot be read may have names that no job can have; there is nothing about these.
    """
    first = ReplicaId.find(job)
    return found.get(first) if first is not None else None


def leading_worker(documents: Documents, job: str) -> WorkerInfo | None:
    """Return the worker whose progress represents the job: of the first running replica that is in step.

    The first and not the fastest, because progress that alternates between replicas looks like restarts.
    """
    workers = documents.workers()
    own = documents.replicas_in(store_paths.WORKERS, workers, job)
    found = [worker for replica in own if (worker := newest(workers[replica]))]
    return max(found, key=_rank, default=None)


def _rank(worker: WorkerInfo) -> tuple[bool, bool, int]:
    in_step = worker.joined is None or worker.joined.in_step
    return worker.phase == "running", in_step, -worker.replica.index


def workers_of(documents: Documents, job: str) -> list[WorkerInfo]:
    """Return the workers of all replicas of a job, in the order of the replicas."""
    by_replica = documents.workers()
    own = documents.replicas_in(store_paths.WORKERS, by_replica, job)
    return [documents.shown(worker) for replica in own for worker in by_replica[replica]]


def last_revision(documents: Documents, job: str) -> int:
    """Return the largest revision of all replicas of a job, which share one counter."""
    status = documents.one(JobStatus, f"{store_paths.STATUS}/{job}")
    assignments = documents.assignments()
    own = documents.replicas_in(store_paths.ASSIGNMENTS, assignments, job)
    return max([status.revision if status else 0, *(assignments[replica].revision for replica in own)])


def job_failure_count(documents: Documents, spec: JobSpec) -> int:
    """Return the number of failures of all replicas of a job."""
    own = documents.replicas_in(store_paths.FAILURES, documents.failures(), spec.name)
    return sum(replica_failure_count(documents, spec, replica) for replica in own)


def replica_failure_count(documents: Documents, spec: JobSpec, replica: ReplicaId) -> int:
    """Return how often the worker of a replica has failed since it last ran well."""
    failures = documents.failures().get(replica)
    assignment = documents.assignments().get(replica)
    # Failures of an earlier replica of this name, which was removed, do not count.
    after = max(spec.after, assignment.after if assignment else 0)
    return failures.count if failures and failures.revision > after else 0


def result_of(documents: Documents, spec: JobSpec, status: JobStatus) -> Result | None:
    """Return the result of a job: that of a replica that has drained, or of the last one to end."""
    results = documents.results()
    if status.phase not in OVER:
        # The job has not ended; results of removed replicas do not count.
        return of_first_replica(results, spec.name)
    own = [results[replica] for replica in documents.replicas_in(store_paths.RESULTS, results, spec.name)]
    current = [result for result in own if is_current_revision(spec, result.revision)]
    last = max(current, key=lambda result: (result.outcome == _DRAINED, result.at), default=None)
    return last or of_first_replica(results, spec.name)


def replicas_of(documents: Documents, spec: JobSpec) -> list[dict[str, Any]]:
    """Return all replicas of a job: those requested, and those not removed yet."""
    assigned, workers = documents.assignments(), documents.workers()
    known = (
        *documents.replicas_in(store_paths.ASSIGNMENTS, assigned, spec.name),
        *documents.replicas_in(store_paths.WORKERS, workers, spec.name),
    )
    existing = {replica.index for replica in known}
    wanted = set(range(replica_count(spec))) if is_replicated(spec) else set()
    if not wanted and existing <= {0}:
        return []
    return [_replica(documents, spec, ReplicaId(spec.name, number)) for number in sorted(existing | wanted)]


def _replica(documents: Documents, spec: JobSpec, replica: ReplicaId) -> dict[str, Any]:
    assignment = documents.assignments().get(replica)
    worker = newest(documents.workers().get(replica, ()))
    worker = documents.shown(worker) if worker is not None else None
    joined = worker.joined if worker else None
    # Before that there is no agreed batch, or the replica has not read the agreement.
    has_position = joined is not None and joined.head >= 0
    return {
        "number": replica.index,
        "node": worker.node if worker else assignment.node if assignment else "",
        "phase": worker.phase if worker else "assigned" if assignment else "missing",
        "revision": assignment.revision if assignment else 0,
        "generation": assignment.generation if assignment else 0,
        "batch": joined.batch if joined and has_position else None,
        "behind": max(0, joined.head - joined.batch) if joined and has_position else None,
        "in_step": worker is not None and worker.phase == "running" and joined is not None and joined.in_step,
        "caught_up": joined.caught_up if joined else 0.0,
        "whole": joined is None or joined.whole,
        "differed": asdict(joined.differed) if joined and joined.differed else None,
        "failures": replica_failure_count(documents, spec, replica),
        "reason": assignment.reason if assignment else "",
    }
