"""What a leader can do. Each action says why; the shell turns it into fenced writes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.documents import Alarm, Assignment, BackupLocation, JobSpec, JobStatus


@dataclass(frozen=True)
class Assign:
    """Have a job run like this from now on."""

    assignment: Assignment
    reason: str

    @property
    def job(self) -> str:
        """Whom it is about."""
        return self.assignment.job


@dataclass(frozen=True)
class Unassign:
    """Have a job run nowhere. Its worker stops after its batch."""

    job: str
    reason: str


@dataclass(frozen=True)
class SetStatus:
    """Say how a job stands."""

    job: str
    status: JobStatus

    @property
    def reason(self) -> str:
        """Why."""
        return self.status.reason


@dataclass(frozen=True)
class UpdateSpec:
    """Change what is wanted of a job, because what was wanted cannot be."""

    spec: JobSpec
    reason: str

    @property
    def job(self) -> str:
        """Whom it is about."""
        return self.spec.name


@dataclass(frozen=True)
class Raise:
    """Tell people of something."""

    alarm: Alarm

    @property
    def reason(self) -> str:
        """Why."""
        return self.alarm.reason


@dataclass(frozen=True)
class Clear:
    """Take an alarm back."""

    id: str
    reason: str


@dataclass(frozen=True)
class SetBackupLocation:
    """Have a copy of a job's data kept somewhere, and know who runs it when its node is lost."""

    location: BackupLocation
    reason: str

    @property
    def job(self) -> str:
        """Whom it is about."""
        return self.location.job


@dataclass(frozen=True)
class RemoveBackupLocation:
    """Have no copy of a job's data made any more."""

    job: str
    reason: str


@dataclass(frozen=True)
class Forget:
    """Remove all documents about a job that is over."""

    job: str
    reason: str


@dataclass(frozen=True)
class KeepRevision:
    """Note, before jobs are forgotten, the largest revision that any of them had."""

    largest: int
    reason: str


@dataclass(frozen=True)
class DropNode:
    """Expect a node no more that has been gone for long."""

    node: str
    reason: str


@dataclass(frozen=True)
class DropTombstone:
    """Remove what says that a job was forgotten."""

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
