"""The documents in which workers and their supervisors report progress, results and failures.

Like all documents, frozen data with times in seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from penstock.replicas.replica_id import AboutReplica, ReplicaId, ReplicaName


@dataclass(frozen=True)
class WorkerFigures(AboutReplica):
    """What a supervisor says of one process that it watches."""

    job: ReplicaName
    role: str
    """``driver`` or ``executor-ORDINAL``."""
    revision: int
    attempt: int
    pid: int
    state: str
    """P and Q of the worker state model, for instance ``LIVE|running``."""
    cpu: float
    """Cores in use, of all its processes together."""
    memory: int
    """Bytes, of all its processes together."""
    since: float
    failures: int = 0
    progress: Progress | None = None
    """Of a worker, as its last heartbeat has it,"""
    joined: ReplicaReport | None = None
    """and for one of several replicas."""
    reason: str = ""
    """Of an executor that waits to be started again: why it ended."""


@dataclass(frozen=True)
class Progress:
    """What a worker has done since it was started."""

    batches: int = 0
    records_in: int = 0
    records_out: int = 0
    discarded: int = 0
    late: int = 0
    errors: int = 0
    lag: int | None = None
    batch_seconds: float = 0.0
    at: float = 0.0


@dataclass(frozen=True)
class Difference:
    """A replica has come to another result than the one that counts."""

    batch: int
    vertex: str
    by: ReplicaName
    """The replica whose result counts."""
    reason: str
    at: float

    @cached_property
    def by_replica(self) -> ReplicaId:
        """The replica that ``by`` names."""
        return ReplicaId.parse(self.by)


@dataclass(frozen=True)
class ReplicaReport:
    """How a replica stands among the others, by its own words."""

    batch: int = -1
    """Its last batch,"""
    head: int = -1
    """and the last one that all have agreed on."""
    since: int = -1
    """Its last batch when it came in."""
    whole: bool = True
    """False while it lacks state from before it came in, with ``recovery="next-window"``."""
    differed: Difference | None = None
    """The last time that its result was another one; it has begun again since."""

    @property
    def in_step(self) -> bool:
        """Whether it could carry the job on alone, without a gap. Before the first batch none lacks anything.

        >>> ReplicaReport().in_step
        True
        >>> ReplicaReport(batch=-1, head=500).in_step, ReplicaReport(batch=499, head=500).in_step
        (False, True)
        """
        return self.whole and self.head - self.batch <= 2

    @property
    def caught_up(self) -> float:
        """How much of what it lacked when it came in it has made up for, from 0 to 1."""
        lacked = self.head - self.since
        return 1.0 if self.head - self.batch <= 2 or lacked <= 0 else (self.batch - self.since) / lacked


@dataclass(frozen=True)
class WorkerInfo(AboutReplica):
    """A worker that is up, by its own words."""

    job: ReplicaName
    revision: int
    attempt: int
    node: str
    pid: int
    phase: str
    """``starting``, ``ready`` (Spark is up, it waits), ``running``, ``stopping``, ``stopped``."""
    since: float
    driver_url: str = ""
    """Where executors of a job over several nodes report to."""
    app_id: str = ""
    progress: Progress = field(default_factory=Progress)
    joined: ReplicaReport | None = None
    """For one of several replicas."""


@dataclass(frozen=True)
class Result(AboutReplica):
    """How a job has ended, written by its last worker before it left."""

    job: ReplicaName
    revision: int
    outcome: str
    """``drained``, ``stopped`` (on request), or ``refused`` (it cannot run like this at all)."""
    reason: str
    at: float
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class WorkerFailure:
    """One failure of a job's worker."""

    at: float
    node: str
    revision: int
    well: bool = False
    """Whether it had run well: see :mod:`penstock.cluster.failure_policy`."""


@dataclass(frozen=True)
class Failures(AboutReplica):
    """The failures of a job's worker that count, and the last of them."""

    job: ReplicaName
    revision: int
    count: int
    reason: str
    node: str
    at: float
    recent: tuple[WorkerFailure, ...] = ()
    """Each of them, the oldest first."""
