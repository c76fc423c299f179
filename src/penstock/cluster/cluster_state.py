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
"""The phases of a worker that is up. One that stands by is ready, and waits."""


@dataclass(frozen=True)
class ReservedResources:
    """What a driver or an executor takes of a node, by an assignment that cannot be read as a whole."""

    name: str
    """Of the job or replica."""
    role: str
    node: str
    cores: int
    memory: int


@dataclass(frozen=True)
class ClusterState:
    """Everything that a decision may be made from, beside what the users want."""

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
    """By job, those that were forgotten lately."""
    revisions: int | None = 0
    """The largest revision of all jobs that were forgotten; None when it is not known because the document
    that says it cannot be read."""
    known: Mapping[str, KnownNode] = field(default_factory=dict)
    """Nodes whose supervisors have not left in order."""
    absent_since: Mapping[str, float] = field(default_factory=dict)
    """For nodes that are known, or needed, and that are not there: since when they are missed."""
    shortage_since: Mapping[str, float] = field(default_factory=dict)
    """For jobs that lack a node for something: since when they do."""
    up_since: Mapping[WorkerKey, float] = field(default_factory=dict)
    """For workers of jobs that were updated or have failed: since when the leader has seen them up."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Jobs of which some document cannot be read, and why: nothing is decided about them."""
    unreadable_room: tuple[ReservedResources, ...] = ()
    """What their assignments take, as far as that can be told."""
    unreadable_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are registered by a document that cannot be read, and why: they are not absent."""
    unreadable_notes: Mapping[str, str] = field(default_factory=dict)
    """Paths of documents about the cluster itself that cannot be read, and why."""
    unreadable_alarms: frozenset[str] = frozenset()
    """Ids of alarms that cannot be read: they are neither raised again nor cleared."""

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
        """The replicas of which failures are known, by job."""
        return by_job(self.failures)

    @cached_property
    def finished(self) -> Mapping[str, tuple[ReplicaId, ...]]:
        """The replicas that have left a result, by job."""
        return by_job(self.results)

    def up_for(self, worker: WorkerInfo, now: float) -> float:
        """Return for how many seconds a worker has been ready or running; 0 if it is neither.

        The leader counts from when it first saw that, by its own clock: the worker's may be another one.
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
    """What the leader goes by."""

    node_grace: float = 4.0
    """Seconds that a node may be missed before its work goes elsewhere. Its session had to end before."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    """What is done about workers that fail."""
    room_grace: float = 300.0
    """Seconds that a job may lack a node before people are told."""
    unsafe_grace: float = 5.0
    """Seconds that a job may be less safe than it was before people are told."""
    free_repeats: int = 5
    """How many times in a row a job is reassigned without delay for the same request."""
    first_wait: float = 1.0
    """Seconds between assignments after that; they double each time,"""
    longest_wait: float = 60.0
    """up to this."""
    calm_after: float = 300.0
    """Seconds without a new assignment after which they are counted from zero again."""


def missed(
    before: Mapping[str, float], actual_nodes: Collection[str], needed: set[str], now: float
) -> dict[str, float]:
    """Return since when each node that is needed has been missed.

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
    """Return since when each worker has been seen up of which it matters: has its job run well since then?

    That is asked of jobs that have failed lately, and of those whose code before is still known.
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
    """Return the worker of the highest revision, and of that the last attempt."""
    return max(workers, key=lambda worker: (worker.revision, worker.attempt), default=None)


def is_current_revision(spec: JobSpec, revision: int) -> bool:
    """Return whether a revision is newer than the last one that counts as history."""
    return revision > spec.after
