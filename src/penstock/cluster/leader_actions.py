"""The actions of a leader, each with a reason. A master turns them into fenced writes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.assignment_documents import Assignment, BackupLocation
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class Assign:
    """Assign a job, or one of its replicas."""

    assignment: Assignment
    reason: str

    @property
    def replica(self) -> ReplicaId:
        """Return the replica that is assigned."""
        return self.assignment.replica

    @property
    def job(self) -> str:
        """Return the job that the action concerns."""
        return self.replica.job


@dataclass(frozen=True)
class Unassign:
    """Remove the assignment of a job, or of one of its replicas. Its worker stops after its batch."""

    replica: ReplicaId
    reason: str

    @property
    def job(self) -> str:
        """Return the job that the action concerns."""
        return self.replica.job


@dataclass(frozen=True)
class SetStatus:
    """Write the status of a job."""

    job: str
    status: JobStatus

    @property
    def reason(self) -> str:
        """Why."""
        return self.status.reason


@dataclass(frozen=True)
class UpdateSpec:
    """Change the spec of a job, because the requested one cannot run."""

    spec: JobSpec
    reason: str

    @property
    def job(self) -> str:
        """Return the job that the action concerns."""
        return self.spec.name


@dataclass(frozen=True)
class Raise:
    """Raise an alarm."""

    alarm: Alarm

    @property
    def reason(self) -> str:
        """Why."""
        return self.alarm.reason


@dataclass(frozen=True)
class Clear:
    """Clear an alarm."""

    id: str
    reason: str


@dataclass(frozen=True)
class SetBackupLocation:
    """Write where a job's backup is stored and which node runs the job if its node is lost."""

    location: BackupLocation
    reason: str

    @property
    def job(self) -> str:
        """Return the job that the action concerns."""
        return self.location.job


@dataclass(frozen=True)
class RemoveBackupLocation:
    """Stop backups of a job's data."""

    job: str
    reason: str


@dataclass(frozen=True)
class Forget:
    """Remove all documents about a job that is over."""

    job: str
    reason: str


@dataclass(frozen=True)
class KeepRevision:
    """Record the largest revision of jobs before they are forgotten."""

    largest: int
    reason: str


@dataclass(frozen=True)
class DropNode:
    """Stop expecting a node that has been lost for long."""

    node: str
    reason: str


@dataclass(frozen=True)
class DropTombstone:
    """Remove the tombstone of a forgotten job."""

    job: str
    reason: str


Action = (
    Assign
    | Unassign
    | SetStatus
    | UpdateSpec
    | Raise
    | Clear
    | SetBackupLocation
    | RemoveBackupLocation
    | Forget
    | KeepRevision
    | DropNode
    | DropTombstone
)
