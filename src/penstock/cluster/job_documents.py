"""The documents about jobs: what users want, their status, alarms, and bundles of code.

Like all documents, frozen data with times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from penstock.cluster.flat_settings import spec_of_schema_1
from penstock.job_settings import JobSettings
from penstock.replicas.replica_id import JobName, ReplicaId

PENDING, STARTING, RUNNING = "PENDING", "STARTING", "RUNNING"
ENDING, ENDED, FAILED = "ENDING", "ENDED", "FAILED"
ACTIVE = (PENDING, STARTING, RUNNING, ENDING)
OVER = (ENDED, FAILED)


@dataclass(frozen=True)
class Code:
    """The code of a job, with its parameters."""

    bundle: str
    entry: str
    structure: Mapping[str, Any]
    generation: int
    params: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """A job as its user wants it to be."""

    SCHEMA: ClassVar[int] = 2
    of_schema_1 = staticmethod(spec_of_schema_1)

    name: JobName
    bundle: str
    """SHA-256 of the bundle with its code."""
    entry: str
    """``FILE[:JOB]`` inside the bundle."""
    generation: int = 1
    """One more with each change of the code or of its parameters."""
    wanted: str = "running"
    """``running`` or ``ended``."""
    drain: bool = False
    """Whether a job that is to end first processes what its sources hold."""
    settings: JobSettings = field(default_factory=JobSettings)
    fresh: bool = False
    """Whether the job starts from scratch: it ignores what it did before it was last submitted,"""
    forget: int = 0
    """in revisions up to this one."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The parameters that its code reads as ``ps.params``."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables of its processes; null takes the value from the node's environment."""
    structure: Mapping[str, Any] = field(default_factory=dict)
    """``job.to_dict()``, to compare an update with."""
    agreed: bool = False
    """Whether replicas agree on its batches. This stays true once the job has had replicas, whatever k is."""
    driver: str = ""
    """The node that the driver was moved to; ignored while that node is missing."""
    driver_by: str = ""
    """What moved it there: ``user``, or ``rebalance``, which may move it again."""
    restarts: int = 0
    """One more whenever the user asks for a new worker of the same code."""
    after: int = 0
    """Results and failures of revisions up to this one no longer count."""
    before: Code | None = None
    """The last code that ran well, to roll back to until the code of an update has run well."""
    submitted: float = 0.0

    @cached_property
    def first_replica(self) -> ReplicaId:
        """Its replica 0, which a job without replicas has as well."""
        return ReplicaId(self.name)


@dataclass(frozen=True)
class AssignmentCount:
    """The counters of a withdrawn assignment of a replica, which the next one continues."""

    asked: str
    """What was asked for then, as a digest,"""
    repeats: int
    """how many assignments for that there were in a row, not counting the first,"""
    changed: float
    """and when the last was made."""


@dataclass(frozen=True)
class JobStatus:
    """The status of a job, written by the leader."""

    phase: str
    """PENDING, STARTING, RUNNING, ENDING, ENDED or FAILED."""
    reason: str
    since: float
    revision: int = 0
    """The largest that was ever assigned."""
    safety: str = ""
    """For a job with replicas ``k-safe``, ``degraded (k=…)`` or ``recovering (…% caught up)``; with a warm
    standby ``standby ready on NODE`` or ``no standby``."""
    unsafe_since: float = 0.0
    """Since when it is less safe than before; 0 while it is safe, and before it first was."""
    differed: float = 0.0
    """The time of the last difference between replicas that raised an alarm."""
    chances: int = 0
    """How many times it was restarted automatically after it failed, since it last ran well."""
    asked: str = ""
    """Of a job whose assignment was taken back by the leader: what was asked for then, as a digest,"""
    repeats: int = 0
    """how many assignments for that there were in a row, not counting the first,"""
    changed: float = 0.0
    """and when the last was made. The next one goes on counting."""
    replica_counts: Mapping[str, AssignmentCount] = field(default_factory=dict)
    """The same for replicas, by number."""


@dataclass(frozen=True)
class Alarm:
    """A condition that an operator should know of."""

    id: str
    kind: str
    subject: str
    """The job or the node."""
    reason: str
    since: float
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tombstone:
    """A mark that a job was forgotten, so that supervisors remove what its processes left."""

    job: str
    revision: int
    """Up to this one."""
    data: bool = False
    """Whether the data of the job is removed as well."""
    at: float = 0.0


@dataclass(frozen=True)
class Revisions:
    """The largest revision of all forgotten jobs; a job with a new name starts above it."""

    largest: int


@dataclass(frozen=True)
class BundleInfo:
    """A bundle that is stored."""

    sha256: str
    size: int
    signature: str
    chunks: int = 0
    """How many nodes of the store below this one hold it; 0 when the supervisors store it."""
    holders: tuple[str, ...] = ()
    """The nodes whose supervisors store it."""
    stored: float = 0.0
