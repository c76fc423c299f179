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
    """A running master."""

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
    """The jobs and replicas with a driver or an executor on a node; its supervisor follows only these."""

    node: str
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterInfo:
    """The identity of the cluster. The storage of its nodes holds the same id."""

    id: str
    since: float


@dataclass(frozen=True)
class NodeInfo:
    """A node with a running supervisor."""

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
    """When its supervisor's process began, in clock ticks since the machine started; setting the clock has no
    effect on it."""
    boot: str = ""
    """The id of that run of the machine; empty if an earlier version registered the node."""


@dataclass(frozen=True)
class KnownNode:
    """An expected node: its supervisor registered it, and has not been stopped in order since."""

    name: str
    since: float


@dataclass(frozen=True)
class NodeReport:
    """The load of a node, and the processes on it."""

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
    """Free bytes where the backups of other nodes' data are stored; -1 if not measured."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Jobs that its supervisor does not act on, because it cannot read their documents, and why."""
