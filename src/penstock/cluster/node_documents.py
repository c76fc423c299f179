"""The documents about masters and nodes: who leads, which nodes there are, how they are doing.

Documents are frozen data that the processes of a cluster exchange through the store, described in
``docs/reference/store.md``. Times are seconds since 1970. They must not know how they are written or read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.cluster.worker_documents import WorkerFigures


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
