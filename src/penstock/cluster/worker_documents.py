"""The documents in which workers and their supervisors report progress, results and failures.

Like all documents, frozen data with times in seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from penstock.replicas.replica_id import AboutReplica, ReplicaId, ReplicaName


@dataclass(frozen=True)
class WorkerFigures(AboutReplica):
    """A supervisor's report of one process that it watches."""

    job: ReplicaName
    role: str
    """``driver`` or ``executor-ORDINAL``."""
    revision: int
    attempt: int
    pid: int
    state: str
    """P and Q of the worker state model, for instance ``LIVE|running``."""
    cpu: float
    """Cores in use, by all its processes together."""
    memory: int
    """Bytes in use, likewise."""
    since: float
    failures: int = 0
    progress: Progress | None = None
    """The progress in a worker's last heartbeat,"""
    joined: ReplicaReport | None = None
    """and a replica's report in it."""
    reason: str = ""
    """Why an executor ended that waits to be restarted."""


@dataclass(frozen=True)
class Progress:
    """The progress of a worker since its start."""

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
    """A replica whose result differed from the committed one."""

    batch: int
    vertex: str
    by: ReplicaName
    """The replica whose result was committed."""
    reason: str
    at: float

    @cached_property
    def by_replica(self) -> ReplicaId:
        """The replica that ``by`` names."""
        return ReplicaId.parse(self.by)


@dataclass(frozen=True)
class ReplicaReport:
    """A replica's own report of its progress relative to the other replicas."""

    batch: int = -1
    """Its last batch,"""
    head: int = -1
    """and the last one that all replicas agreed on."""
    since: int = -1
    """Its last batch when it joined."""
    whole: bool = True
    """False while it lacks state from before it joined, with ``recovery="next-window"``."""
    differed: Difference | None = None
    """The last time that its result differed; it has been rebuilt since."""

    @property
    def in_step(self) -> bool:
        """Whether it could continue the job alone, without a gap; before the first batch every replica can.

        >>> ReplicaReport().in_step
        True
        >>> ReplicaReport(batch=-1, head=500).in_step, ReplicaReport(batch=499, head=500).in_step
        (False, True)
        """
        return self.whole and self.head - self.batch <= 2

    @property
    def caught_up(self) -> float:
        """The share of the batches that it lacked when it joined and has processed since, from 0 to 1."""
        lacked = self.head - self.since
        return 1.0 if self.head - self.batch <= 2 or lacked <= 0 else (self.batch - self.since) / lacked


@dataclass(frozen=True)
class WorkerInfo(AboutReplica):
    """A worker's own document, which exists as long as its session."""

    job: ReplicaName
    revision: int
    attempt: int
    node: str
    pid: int
    phase: str
    """``starting``, ``ready`` (Spark is up, it waits), ``running``, ``stopping``, ``stopped``."""
    since: float
    driver_url: str = ""
    """The address that the executors of the job connect to."""
    app_id: str = ""
    progress: Progress = field(default_factory=Progress)
    joined: ReplicaReport | None = None
    """For one of several replicas."""


@dataclass(frozen=True)
class Result(AboutReplica):
    """How a worker ended for good, written before it left."""

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
    """Whether it had run well before: see :mod:`penstock.cluster.failure_policy`."""


@dataclass(frozen=True)
class Failures(AboutReplica):
    """The failures of a worker that count towards giving it up, and details of the last one."""

    job: ReplicaName
    revision: int
    count: int
    reason: str
    node: str
    at: float
    recent: tuple[WorkerFailure, ...] = ()
    """Each of them, the oldest first."""
