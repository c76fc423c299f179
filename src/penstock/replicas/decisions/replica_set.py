"""The desired replicas of a job, each as a job spec, and whether a cluster has nodes for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.replicas.replica_id import ReplicaId


def is_replicated(spec: JobSpec) -> bool:
    """Return whether the job runs as a replica set, even if that has one replica.

    >>> [is_replicated(JobSpec("count", "", "", agreed=agreed)) for agreed in (False, True)]
    [False, True]
    """
    return spec.agreed or spec.settings.replicas.is_replicated


def has_warm_standby(spec: JobSpec) -> bool:
    """Return whether one replica runs and another one waits as a warm standby."""
    return spec.settings.replicas.k == 0 and spec.settings.replicas.warm_standby


def replica_count(spec: JobSpec) -> int:
    """Return the requested number of replicas of a job.

    >>> from penstock.job_settings import JobSettings, Replicas
    >>> given = Replicas(), Replicas(k=2), Replicas(warm_standby=True)
    >>> [replica_count(JobSpec("count", "", "", settings=JobSettings(replicas=one))) for one in given]
    [1, 3, 2]
    """
    return 2 if has_warm_standby(spec) else spec.settings.replicas.k + 1


@dataclass(frozen=True)
class ReplicaSpec:
    """The desired state of a replica."""

    id: ReplicaId
    spec: JobSpec
    """The spec of the job. Only that of the first replica has the node to which the user moved the driver."""


def replica_specs(spec: JobSpec) -> list[ReplicaSpec]:
    """Return the desired replicas of a job."""
    first, count = ReplicaSpec(spec.first_replica, spec), replica_count(spec)
    if count == 1:
        return [first]
    other = replace(spec, driver="", driver_by="")
    return [first, *(ReplicaSpec(ReplicaId(spec.name, index), other) for index in range(1, count))]


def shortage(spec: JobSpec, nodes: Mapping[str, NodeInfo]) -> str:
    """Return which nodes or racks a cluster lacks for the replicas of a job; empty when it has enough.

    >>> nodes = {name: NodeInfo(name, "", 4, 4 << 30) for name in ("n1", "n2")}
    >>> from penstock.job_settings import JobSettings, Replicas
    >>> specs = {k: JobSpec("count", "", "", settings=JobSettings(replicas=Replicas(k=k))) for k in (1, 2)}
    >>> shortage(specs[1], nodes)
    ''
    >>> print(shortage(specs[2], nodes))
    k=2 needs 3 nodes, and there are 2 with 1 core and 2048 MiB that it may use (n1, n2): add 1 node
    """
    count = replica_count(spec)
    if count < 2:
        return ""
    what = "a warm standby" if has_warm_standby(spec) else f"k={spec.settings.replicas.k}"
    able = [nodes[name] for name in sorted(nodes) if _can_use(spec, nodes[name])]
    if len(able) < count:
        asked = (
            f"{_number(spec.settings.resources.cores, 'core')} and {spec.settings.resources.memory >> 20} MiB"
        )
        there = f"{_are(len(able))} with {asked} that it may use{_named([node.name for node in able])}"
        return f"{what} needs {count} nodes, and there {there}: add {_number(count - len(able), 'node')}"
    racks = sorted({node.rack for node in able})
    if len({node.rack for node in nodes.values()}) > 1 and len(racks) < count:
        there = f"its nodes are in {_number(len(racks), 'rack')}{_named([rack or 'none' for rack in racks])}"
        missing = _number(count - len(racks), "rack")
        return f"{what} needs nodes in {count} racks, and {there}: add nodes in {missing} more"
    return ""


def is_other_replica(one: ReplicaId, other: ReplicaId) -> bool:
    """Return whether two replicas are different ones of the same job."""
    return one.job == other.job and one.index != other.index


def nodes_used(assignment: Assignment) -> set[str]:
    """Return the nodes that a driver and its executors are assigned to."""
    return {assignment.node, *(slot.node for slot in assignment.executors)}


def nodes_of_other_replicas(
    replica: ReplicaId, assignments: Mapping[ReplicaId, Assignment]
) -> frozenset[str]:
    """Return the nodes that the other replicas of a job are assigned to."""
    others = [nodes_used(one) for other, one in assignments.items() if is_other_replica(other, replica)]
    return frozenset().union(*others)


def allows_node(spec: JobSpec, node: NodeInfo) -> bool:
    """Return whether the job's settings allow a node, whatever runs there."""
    labels = all(node.labels.get(label) == value for label, value in spec.settings.placement.labels.items())
    allowed = spec.settings.placement.nodes
    return labels and (not allowed or node.name in allowed)


def _can_use(spec: JobSpec, node: NodeInfo) -> bool:
    """Return whether the node, if it were empty, could run a driver of the job."""
    asked = spec.settings.resources
    large = node.cores >= asked.cores and node.memory >= asked.memory
    return large and allows_node(spec, node)


def _named(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}"
