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
