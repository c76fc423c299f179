"""The documents that the processes of a cluster exchange, as frozen data, and the phases of a job.

Times are seconds since 1970. This one module is the schema of the store (``docs/reference/store.md`` is
checked against it); that is why it is longer than others. It must not know how documents are written, read
or decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from penstock.cluster.flat_settings import assignment_of_schema_1, spec_of_schema_1
from penstock.job_settings import JobSettings
from penstock.replicas.replica_id import AboutReplica, JobName, ReplicaId, ReplicaName

PENDING, STARTING, RUNNING = "PENDING", "STARTING", "RUNNING"
ENDING, ENDED, FAILED = "ENDING", "ENDED", "FAILED"

ACTIVE = (PENDING, STARTING, RUNNING, ENDING)
OVER = (ENDED, FAILED)


@dataclass(frozen=True)
class MasterInfo:
    """A master that is up."""

    name: str
    url: str
    pid: int
    started: float
    version: str


@dataclass(frozen=True)
class Epoch:
    """The term of a leader. Each leader's number is larger than those of all before it."""

    number: int
    leader: str
    url: str
    since: float
    lists_jobs: bool = False
    """Whether the leader keeps a NodeJobs for each node; otherwise supervisors follow all assignments."""


@dataclass(frozen=True)
class NodeJobs:
    """The jobs and replicas that have their driver or an executor on a node: what its supervisor follows."""

    node: str
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterInfo:
    """Which cluster this is. The storage of its nodes has the same id."""

    id: str
    since: float


@dataclass(frozen=True)
class NodeInfo:
    """A node whose supervisor is up."""

    name: str
    host: str
    """The address that its workers listen on."""
    cores: int
    memory: int
    """Bytes that workers may use."""
    rack: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    """Where its supervisor answers."""
    pid: int = 0
    started: float = 0.0
    version: str = ""
    bandwidth: float = 0.0
    """Bandwidth of its network link in bytes a second; 0 if not given."""
    uplink: float = 0.0
    """Bandwidth between its rack and the others in bytes a second; 0 if not given."""
    ticks: int | None = None
    """When the process of its supervisor began, counted since the machine did; holds if the clock is set."""
    boot: str = ""
    """Which run of the machine that was; empty if an earlier version has registered it."""


@dataclass(frozen=True)
class KnownNode:
    """A node that is expected: its supervisor has registered it, and has not left in order since."""

    name: str
    since: float


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
class NodeReport:
    """How a node is doing."""

    at: float
    cpu: float
    """Of all its cores together, from 0 to 1."""
    memory_used: int
    memory_total: int
    network_in: float
    """Bytes a second."""
    network_out: float
    workers: tuple[WorkerFigures, ...] = ()
    disk_free: int = -1
    """Bytes that are free where copies of other nodes' data go; -1 if it has not looked."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Jobs that its supervisor leaves alone because it cannot read what is assigned, and why."""


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
class ExecutorSlot:
    """Where one executor of a job belongs."""

    ordinal: int
    node: str
    cores: int
    memory: int


@dataclass(frozen=True)
class RestoreSource:
    """What a worker begins with whose job's data was lost with another node."""

    store: str
    """The node that has a copy,"""
    url: str
    """and where its supervisor answers."""
    revision: int
    """The revision that ran on the node that was lost. Who has restored what that left does not again."""
    rate: float = 0.0
    """Bytes a second that were set aside for bringing it; 0 if none were."""


@dataclass(frozen=True)
class ReplicaAssignment:
    """For a worker that is one of the replicas of a job."""

    number: int
    """From 0 to k."""
    lineage: int = 0
    """What the job did up to this revision is forgotten; replicas of one lineage agree with each other."""
    runs: bool = True
    """False for a warm standby: it is ready, and waits until this becomes true."""


@dataclass(frozen=True)
class Assignment(AboutReplica):
    """Where a job runs, in what version. Workers follow it by themselves.

    A new ``revision`` is a new worker. The one before it runs on until its successor is ready, then stops
    after its batch. Executors come and go without a new revision.
    """

    SCHEMA: ClassVar[int] = 2
    of_schema_1 = staticmethod(assignment_of_schema_1)

    job: ReplicaName
    epoch: int
    revision: int
    generation: int
    bundle: str
    entry: str
    node: str
    """The node of the driver."""
    settings: JobSettings = field(default_factory=JobSettings)
    """The settings that its worker was started with."""
    executors: tuple[ExecutorSlot, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    fresh: bool = False
    """Whether the worker forgets what others before it have done,"""
    forget: int | None = None
    """if they were of revisions up to this one; None for all before its own."""
    restarts: int = 0
    """One more whenever the user asks for a new worker of the same code."""
    after: int = 0
    """Failures of revisions up to this one are history."""
    restore: RestoreSource | None = None
    """For a job whose data is with its node: the copy that it goes on from."""
    membership: ReplicaAssignment | None = None
    """For one of several replicas: which."""
    strategy: str = ""
    """Who decided where it runs."""
    refused: str = ""
    """Why what the job's own strategy said was not used; empty if it was."""
    reason: str = ""
    since: float = 0.0
    asked: str = ""
    """A digest of what was asked for when it was made (``assignment_backoff.request_digest``)."""
    repeats: int = 0
    """How many times in a row it was made again for the same request,"""
    changed: float = 0.0
    """and when its revision or its executors last changed."""

    @property
    def over_nodes(self) -> bool:
        """Whether the driver was started for executors, be there a node for them or not.

        >>> from penstock.job_settings import Resources
        >>> Assignment("count", 1, 1, 1, "", "", "n1", JobSettings(Resources(executors=2))).over_nodes
        True
        """
        return self.settings.resources.executors > 0


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
class BackupLocation:
    """For a job whose data is with its node: who keeps a copy, and who runs it when that node is lost."""

    job: str
    store: str
    store_url: str
    redeploy: str
    rate: float = 0.0
    """Bytes a second that are set aside for the way from the one to the other; 0 where they are the same."""
    seconds: float = 0.0
    """How long that way takes."""
    reason: str = ""
    since: float = 0.0
    assumed: str = ""
    """Assumed values that it was decided on, because they were not measured or given."""


@dataclass(frozen=True)
class BackupStatus:
    """Where the data of a job is that is with its node, and how far its copy has come: by its worker."""

    job: str
    origin: str
    """The node with the data itself."""
    revision: int
    attempt: int
    store: str = ""
    """The node that has a whole snapshot; empty as long as none has."""
    store_url: str = ""
    number: int = 0
    """Of the last snapshot that is whole there; they are counted over all revisions."""
    batch: int = -1
    """The last batch in it."""
    bytes: int = 0
    """The size of it,"""
    sent: int = 0
    """and how much of that had to be sent."""
    at: float = 0.0
    rate: float = 0.0
    """Bytes a second that have lately been sent."""


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
