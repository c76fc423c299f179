"""The state of a cluster at one moment, as read from the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.failure_policy import FailurePolicy
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus, Tombstone
from penstock.cluster.node_documents import KnownNode, NodeInfo, NodeReport
from penstock.cluster.worker_documents import Failures, Result, WorkerInfo
from penstock.cluster.worker_progress import WorkerKey
from penstock.replicas.replica_id import ReplicaId, by_job

UP = ("ready", "running")
"""The phases of a worker that is up. A standby is ready and waits."""


@dataclass(frozen=True)
class ReservedResources:
    """The resources of a driver or an executor whose assignment cannot be read completely."""

    name: str
    """The name of the job or replica."""
    role: str
    node: str
    cores: int
    memory: int


@dataclass(frozen=True)
class ClusterState:
    """Everything that decisions depend on, except what the users want."""

    nodes: Mapping[str, NodeInfo] = field(default_factory=dict)
    reports: Mapping[str, NodeReport] = field(default_factory=dict)
    assignments: Mapping[ReplicaId, Assignment] = field(default_factory=dict)
    workers: Mapping[ReplicaId, tuple[WorkerInfo, ...]] = field(default_factory=dict)
    """Those that hold their place in the store."""
    results: Mapping[ReplicaId, Result] = field(default_factory=dict)
    failures: Mapping[ReplicaId, Failures] = field(default_factory=dict)
    statuses: Mapping[str, JobStatus] = field(default_factory=dict)
    alarms: Mapping[str, Alarm] = field(default_factory=dict)
    locations: Mapping[str, BackupLocation] = field(default_factory=dict)
    kept: Mapping[str, BackupStatus] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    """By job, those of recently forgotten jobs."""
    revisions: int | None = 0
    """The largest revision of all forgotten jobs; None if its document cannot be read."""
    known: Mapping[str, KnownNode] = field(default_factory=dict)
    """Nodes whose supervisors have not left in order."""
    absent_since: Mapping[str, float] = field(default_factory=dict)
    """For known or needed nodes that are missing: since when."""
    shortage_since: Mapping[str, float] = field(default_factory=dict)
    """For jobs with a part that has no node: since when."""
    up_since: Mapping[WorkerKey, float] = field(default_factory=dict)
    """For workers of jobs that were updated or have failures: since when the leader has seen them up."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Jobs with an unreadable document, and why it is: nothing is decided about them."""
    unreadable_room: tuple[ReservedResources, ...] = ()
    """The resources of their assignments, as far as these can be read."""
    unreadable_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes whose registration cannot be read, and why: they are not missing."""
    unreadable_notes: Mapping[str, str] = field(default_factory=dict)
    """Paths of unreadable documents about the cluster itself, and why they are."""
    unreadable_alarms: frozenset[str] = frozenset()
    """Ids of unreadable alarms: they are neither raised again nor cleared."""

    @cached_property
    def assigned(self) -> Mapping[str, tuple[ReplicaId, ...]]:
        """The replicas that are assigned, by job."""
        return by_job(self.assignments)

    @cached_property
    def staffed(self) -> Mapping[str, tuple[ReplicaId, ...]]:
        """The replicas that have workers, by job."""
        return by_job(self.workers)

    @cached_property
    def failed(self) -> Mapping[str, tuple[ReplicaId, ...]]:
        """The replicas with failures, by job."""
        return by_job(self.failures)

    @cached_property
    def finished(self) -> Mapping[str, tuple[ReplicaId, ...]]:
        """The replicas with a result, by job."""
        return by_job(self.results)

    def up_for(self, worker: WorkerInfo, now: float) -> float:
        """Return for how many seconds a worker has been ready or running; 0 if it is neither.

        The leader measures this with its own clock, from when it first saw the worker up.
        """
        if worker.phase not in UP:
            return 0.0
        return now - self.up_since.get(_identity(worker), worker.since)

    @cached_property
    def rack_count(self) -> int:
        """How many racks the nodes are in."""
        return len({node.rack for node in self.nodes.values()})


@dataclass(frozen=True)
class Rules:
    """The limits of the leader's decisions."""

    node_grace: float = 4.0
    """Seconds that a node may be missing before its work is moved. Its session has to end first."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    """The policy for workers that fail."""
    room_grace: float = 300.0
    """Seconds that a job may lack a node before an alarm is raised."""
    unsafe_grace: float = 5.0
    """Seconds that a job may be less safe than before until an alarm is raised."""
    free_repeats: int = 5
    """How many times in a row a job is reassigned without delay for the same request."""
    first_wait: float = 1.0
    """Seconds between assignments after that; they double each time,"""
    longest_wait: float = 60.0
    """up to this."""
    calm_after: float = 300.0
    """Seconds without a new assignment after which the count starts again."""


def missed(
    before: Mapping[str, float], actual_nodes: Collection[str], needed: set[str], now: float
) -> dict[str, float]:
    """Return since when each needed node has been missing.

    >>> missed({"n1": 5.0}, {}, {"n1", "n2"}, 9.0)
    {'n1': 5.0, 'n2': 9.0}
    """
    return {name: before.get(name, now) for name in sorted(needed) if name not in actual_nodes}


def needed_nodes(assignments: Mapping[ReplicaId, Assignment]) -> set[str]:
    """Return the nodes that something is assigned to."""
    drivers = {assignment.node for assignment in assignments.values()}
    return drivers | {slot.node for assignment in assignments.values() for slot in assignment.executors}


def seen_up(
    before: Mapping[WorkerKey, float],
    desired: Mapping[str, JobSpec],
    actual: ClusterState,
    now: float,
) -> dict[WorkerKey, float]:
    """Return since when the leader has seen workers up, for jobs that may have to prove that they run well.

    These are jobs with failures, and updated jobs that could still be rolled back.
    """
    updated = [
        replica
        for job, spec in desired.items()
        if spec.before is not None
        for replica in actual.staffed.get(job, ())
    ]
    found = {}
    for replica in {*updated, *(one for one in actual.failures if one in actual.workers)}:
        for worker in actual.workers[replica]:
            if worker.phase in UP:
                key = _identity(worker)
                found[key] = before.get(key, now)
    return found


def _identity(worker: WorkerInfo) -> WorkerKey:
    return worker.replica, worker.revision, worker.attempt


def newest(workers: tuple[WorkerInfo, ...]) -> WorkerInfo | None:
    """Return the last attempt of the highest revision."""
    return max(workers, key=lambda worker: (worker.revision, worker.attempt), default=None)


def is_current_revision(spec: JobSpec, revision: int) -> bool:
    """Return whether a revision counts for the current request, and not as history."""
    return revision > spec.after
