"""The documents that say where a job runs, and where its data has a backup.

Like all documents, frozen data with times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.cluster.flat_settings import assignment_of_schema_1
from penstock.job_settings import JobSettings
from penstock.replicas.replica_id import AboutReplica, ReplicaName


@dataclass(frozen=True)
class ExecutorSlot:
    """The node and the size of one executor of a job."""

    ordinal: int
    node: str
    cores: int
    memory: int


@dataclass(frozen=True)
class RestoreSource:
    """The backup that a worker starts from after its job's data was lost with another node."""

    store: str
    """The node that has the backup,"""
    url: str
    """and the address of its supervisor."""
    revision: int
    """The revision that ran on the lost node. A worker that has restored its data does not do so again."""
    rate: float = 0.0
    """Bytes a second that are reserved for the transfer; 0 if none are."""


@dataclass(frozen=True)
class ReplicaAssignment:
    """The role of a worker among the replicas of a job."""

    number: int
    """From 0 to k."""
    lineage: int = 0
    """What the job did up to this revision is ignored; replicas agree with those of the same lineage."""
    runs: bool = True
    """False for a warm standby, which is ready and waits until this becomes true."""


@dataclass(frozen=True)
class Assignment(AboutReplica):
    """The node and the version that a job, or one of its replicas, runs with. Workers follow it.

    A new ``revision`` means a new worker. The previous worker runs until its successor is ready, then stops
    after its batch. Executors are added and removed without a new revision.
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
    """The settings of the worker's start."""
    executors: tuple[ExecutorSlot, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    fresh: bool = False
    """Whether the worker starts from scratch: it ignores what earlier workers did,"""
    forget: int | None = None
    """in revisions up to this one; None for all before its own."""
    restarts: int = 0
    """One more whenever the user asks for a new worker of the same code."""
    after: int = 0
    """Failures of revisions up to this one no longer count."""
    restore: RestoreSource | None = None
    """The backup to continue from, for a job with node-kept data."""
    membership: ReplicaAssignment | None = None
    """The role in a replica set; None for a job without replicas."""
    strategy: str = ""
    """The strategy that chose its nodes."""
    refused: str = ""
    """Why the answer of the job's own strategy was not used; empty if it was."""
    reason: str = ""
    since: float = 0.0
    asked: str = ""
    """A digest of the request that it was made for (``assignment_backoff.request_digest``)."""
    repeats: int = 0
    """How many times in a row it was made again for the same request,"""
    changed: float = 0.0
    """and when its revision or its executors last changed."""

    @property
    def over_nodes(self) -> bool:
        """Whether the driver was started for executors, even if no node has room for them.

        >>> from penstock.job_settings import Resources
        >>> Assignment("count", 1, 1, 1, "", "", "n1", JobSettings(Resources(executors=2))).over_nodes
        True
        """
        return self.settings.resources.executors > 0


@dataclass(frozen=True)
class BackupLocation:
    """Where the backup of node-kept data is stored, and where the job runs when its node is lost."""

    job: str
    store: str
    store_url: str
    redeploy: str
    rate: float = 0.0
    """Bytes a second that are reserved for the transfer between the two; 0 if they are the same node."""
    seconds: float = 0.0
    """How long that transfer takes."""
    reason: str = ""
    since: float = 0.0
    assumed: str = ""
    """The values that the decision assumed, because they were neither measured nor given."""


@dataclass(frozen=True)
class BackupStatus:
    """Where the node-kept data of a job is, and the progress of its backup; written by its worker."""

    job: str
    origin: str
    """The node that has the data itself."""
    revision: int
    attempt: int
    store: str = ""
    """The node that has a complete snapshot; empty while none has."""
    store_url: str = ""
    number: int = 0
    """The number of the last complete snapshot there, counted over all revisions."""
    batch: int = -1
    """The last batch in that snapshot."""
    bytes: int = 0
    """The size of it,"""
    sent: int = 0
    """and how much of that had to be sent."""
    at: float = 0.0
    rate: float = 0.0
    """Bytes a second that were sent recently."""
