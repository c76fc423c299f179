"""The status of a job with replicas: its leading worker, the state of each replica, its result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.cluster.cluster_state import is_current_revision, newest
from penstock.cluster.documents import OVER, JobSpec, JobStatus, Result, WorkerInfo
from penstock.coord import store_paths
from penstock.coord.mirrored_documents import Documents
from penstock.replicas.decisions.replica_set import is_replicated, replica_count
from penstock.replicas.replica_id import ReplicaId

_DRAINED = "drained"


def leading_worker(documents: Documents, job: str) -> WorkerInfo | None:
    """Return the worker whose progress represents the job: of the first running replica that is in step.

    The first and not the fastest, because progress that alternates between replicas looks like restarts.
    """
    workers = documents.workers()
    members = documents.members(store_paths.WORKERS, workers, job)
    found = [worker for member in members if (worker := newest(workers[member]))]
    return max(found, key=_rank, default=None)


def _rank(worker: WorkerInfo) -> tuple[bool, bool, int]:
    in_step = worker.joined is None or worker.joined.in_step
    return worker.phase == "running", in_step, -ReplicaId.parse(worker.job).index


def workers_of(documents: Documents, job: str) -> list[WorkerInfo]:
    """Return the workers of all replicas of a job, in the order of the replicas."""
    by_member = documents.workers()
    own = documents.members(store_paths.WORKERS, by_member, job)
    return [documents.shown(worker) for member in own for worker in by_member[member]]


def last_revision(documents: Documents, job: str) -> int:
    """Return the largest revision of all replicas of a job, which share one counter."""
    status = documents.one(JobStatus, f"{store_paths.STATUS}/{job}")
    assignments = documents.assignments()
    own = documents.members(store_paths.ASSIGNMENTS, assignments, job)
    return max([status.revision if status else 0, *(assignments[member].revision for member in own)])


def job_failure_count(documents: Documents, spec: JobSpec) -> int:
    """Return the number of failures of all replicas of a job."""
    members = documents.members(store_paths.FAILURES, documents.failures(), spec.name)
    return sum(replica_failure_count(documents, spec, member) for member in members)


def replica_failure_count(documents: Documents, spec: JobSpec, member: str) -> int:
    """Return how often the worker of a replica has failed since it last ran well."""
    failures = documents.failures().get(member)
    assignment = documents.assignments().get(member)
    # Failures of an earlier replica of this name, which was removed, do not count.
    after = max(spec.after, assignment.after if assignment else 0)
    return failures.count if failures and failures.revision > after else 0


def result_of(documents: Documents, spec: JobSpec, status: JobStatus) -> Result | None:
    """Return the result of a job: that of a replica that has drained, or of the last one to end."""
    results = documents.all(Result, store_paths.RESULTS)
    if status.phase not in OVER:
        return results.get(spec.name)  # The job has not ended; results of removed replicas do not count.
    own = [results[member] for member in documents.members(store_paths.RESULTS, results, spec.name)]
    current = [result for result in own if is_current_revision(spec, result.revision)]
    last = max(current, key=lambda result: (result.outcome == _DRAINED, result.at), default=None)
    return last or results.get(spec.name)


def replicas_of(documents: Documents, spec: JobSpec) -> list[dict[str, Any]]:
    """Return all replicas of a job: those requested, and those not removed yet."""
    assigned, workers = documents.assignments(), documents.workers()
    names = (
        *documents.members(store_paths.ASSIGNMENTS, assigned, spec.name),
        *documents.members(store_paths.WORKERS, workers, spec.name),
    )
    existing = {ReplicaId.parse(name).index for name in names}
    wanted = set(range(replica_count(spec))) if is_replicated(spec) else set()
    if not wanted and existing <= {0}:
        return []
    return [_replica(documents, spec, number) for number in sorted(existing | wanted)]


def _replica(documents: Documents, spec: JobSpec, number: int) -> dict[str, Any]:
    name = str(ReplicaId(spec.name, number))
    assignment = documents.assignments().get(name)
    worker = newest(documents.workers().get(name, ()))
    worker = documents.shown(worker) if worker is not None else None
    joined = worker.joined if worker else None
    # Before that there is no agreed batch, or the replica has not read the agreement.
    has_position = joined is not None and joined.head >= 0
    return {
        "number": number,
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
        "failures": replica_failure_count(documents, spec, name),
        "reason": assignment.reason if assignment else "",
    }
