"""The documents about jobs: what users want, what the leader says of it, alarms, and bundles of code.

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
    """What a job runs."""

    bundle: str
    entry: str
    structure: Mapping[str, Any]
    generation: int
    params: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """A job as its user wants it."""

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
    """Whether a job that shall end processes first what its sources have."""
    settings: JobSettings = field(default_factory=JobSettings)
    fresh: bool = False
    """Whether the job forgets what it has done before it was last submitted,"""
    forget: int = 0
    """that is, by revisions up to this one."""
    params: Mapping[str, str] = field(default_factory=dict)
    """What its code reads as ``ps.params``."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables of its processes' environment; null for the value that the node has of it."""
    structure: Mapping[str, Any] = field(default_factory=dict)
    """``job.to_dict()``, to compare an update with."""
    agreed: bool = False
    """Whether its batches are agreed on: once it has had replicas, they are, whatever k is later."""
    driver: str = ""
    """The node that the user moved the driver to; it counts as long as that node is there."""
    driver_by: str = ""
    """Who moved it there: ``user``, or ``rebalance``, which may move it again."""
    restarts: int = 0
    """One more whenever the user asks for a new worker of the same code."""
    after: int = 0
    """Results and failures of revisions up to this one are history."""
    before: Code | None = None
    """The last code that has run well, to fall back to as long as the code of an update has not."""
    submitted: float = 0.0

    @cached_property
    def first_replica(self) -> ReplicaId:
        """Its replica 0, which a job without replicas has as well."""
        return ReplicaId(self.name)


@dataclass(frozen=True)
class AssignmentCount:
    """How often a replica was assigned before its assignment was taken back: the next one counts on."""

    asked: str
    """What was asked for then, as a digest,"""
    repeats: int
    """how many assignments for that there were in a row, not counting the first,"""
    changed: float
    """and when the last was made."""


@dataclass(frozen=True)
class JobStatus:
    """What the leader says of a job."""

    phase: str
    """PENDING, STARTING, RUNNING, ENDING, ENDED or FAILED."""
    reason: str
    since: float
    revision: int = 0
    """The largest that was ever given out."""
    safety: str = ""
    """Of a job with replicas: ``k-safe``, ``degraded (k=…)`` or ``recovering (…% caught up)``; with a warm
    standby ``standby ready on NODE`` or ``no standby``."""
    unsafe_since: float = 0.0
    """Since when it is less safe than it was; 0 while it is safe, and before it was for the first time."""
    differed: float = 0.0
    """When the last difference between replicas was that people were told of."""
    chances: int = 0
    """How many times it was started again by itself after it had failed, since it last ran well."""
    asked: str = ""
    """Of a job whose assignment was taken back by the leader: what was asked for then, as a digest,"""
    repeats: int = 0
    """how many assignments for that there were in a row, not counting the first,"""
    changed: float = 0.0
    """and when the last was made. The next one goes on counting."""
    replica_counts: Mapping[str, AssignmentCount] = field(default_factory=dict)
    """The same of replicas, by number."""


@dataclass(frozen=True)
class Alarm:
    """Something that a person should know of."""

    id: str
    kind: str
    subject: str
    """The job or the node."""
    reason: str
    since: float
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tombstone:
    """That a job was forgotten: what its processes left can be removed."""

    job: str
    revision: int
    """Up to this one."""
    data: bool = False
    """Whether what the job has done is removed as well."""
    at: float = 0.0


@dataclass(frozen=True)
class Revisions:
    """After which revision a job begins that is not known: the largest of those that were forgotten."""

    largest: int


@dataclass(frozen=True)
class BundleInfo:
    """A bundle that is stored."""

    sha256: str
    size: int
    signature: str
    chunks: int = 0
    """How many nodes below this one hold it; 0 when it is with the supervisors."""
    holders: tuple[str, ...] = ()
    """The nodes whose supervisors have it."""
    stored: float = 0.0
