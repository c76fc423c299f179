"""Keeps replicas of a job apart: no two on a node and, if possible, no two in a rack.

Replicas are placed one after the other, drivers first: each avoids the nodes of those before it. The
executors of a replica may use a fair share of the nodes only, so that there is room for each replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.placement_request import PlacementRequest
from penstock.replicas.decisions.replica_set import (
    is_other_replica,
    is_replicated,
    nodes_of_other_replicas,
    replica_count,
)
from penstock.schedule.cluster_snapshot import driver_task, replica_of_task
from penstock.schedule.placement_constraints import allowed_nodes, current_placement, obstacle, usages
from penstock.schedule.placement_model import ClusterSnapshot, Node


def placement_rounds(requests: Iterable[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Return the rounds of requests: none has two replicas of a job, and all drivers precede executors.

    >>> from penstock.cluster.job_documents import JobSpec
    >>> from penstock.job_settings import JobSettings, Replicas
    >>> both = JobSpec("a", "", "", settings=JobSettings(replicas=Replicas(k=1)))
    >>> alone = PlacementRequest(JobSpec("b", "", ""))
    >>> requests = [PlacementRequest(both), PlacementRequest(both, replica=1), alone]
    >>> [[str(one.id) for one in asked] for asked in placement_rounds(requests)]
    [['a', 'b'], ['a~1']]
    """
    drivers: list[list[PlacementRequest]] = []
    executors: list[list[PlacementRequest]] = []
    seen: dict[tuple[str, bool], int] = {}
    for request in sorted(requests, key=lambda request: request.id):
        parts = _parts(request) if is_replicated(request.spec) else [request]
        for part in parts:
            turns = drivers if part.driver or not is_replicated(part.spec) else executors
            key = (part.spec.name, turns is drivers)
            turn = seen[key] = seen.get(key, -1) + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(part)
    return [*drivers, *executors]


def _parts(request: PlacementRequest) -> list[PlacementRequest]:
    if not request.driver:
        return [request]
    driver = replace(request, missing=())
    return [driver, replace(request, driver=False)] if request.missing else [driver]


def with_excluded_nodes(
    request: PlacementRequest, requests: Iterable[PlacementRequest], snapshot: ClusterSnapshot
) -> PlacementRequest:
    """Return a request with the nodes to avoid; for a job without replicas there are none."""
    if not is_replicated(request.spec):
        return request
    others = _of_others(request, requests, snapshot)
    if request.driver:
        near = nodes_in_same_racks(others, snapshot.nodes) - {request.only, request.prefer}
        wide = others | near
        return replace(request, apart=wide if _has_room(request, wide, snapshot) else others)
    return replace(request, apart=_beyond_share(request, others, snapshot))


def _of_others(
    request: PlacementRequest, requests: Iterable[PlacementRequest], snapshot: ClusterSnapshot
) -> frozenset[str]:
    """Return the nodes of the other replicas, also of those being placed again, which may find no other."""
    own = request.id
    standing = {
        task.current
        for task in snapshot.tasks
        if task.current and (one := replica_of_task(task)) and is_other_replica(one, own)
    }
    before = {other.id: other.before for other in requests if other.before is not None}
    return nodes_of_other_replicas(own, before) | standing


def nodes_in_same_racks(names: frozenset[str], nodes: Iterable[Node | NodeInfo]) -> frozenset[str]:
    """Return the nodes in the same racks as those with these names; none where all are in one rack."""
    rack_of = {node.name: node.rack for node in nodes}
    racks = {rack_of[name] for name in names if name in rack_of}
    several = len(set(rack_of.values())) > 1
    return frozenset(name for name, rack in rack_of.items() if several and rack in racks)


def _has_room(request: PlacementRequest, apart: frozenset[str], snapshot: ClusterSnapshot) -> bool:
    """Return whether a driver finds a node while it avoids some. A high load is no obstacle here."""
    avoid, permitted = tuple(sorted(apart | request.avoid)), request.spec.settings.placement.nodes
    task = driver_task(request.spec, permitted, avoid=avoid, replica=request.replica)
    used = usages(current_placement(snapshot), snapshot)
    calm = replace(snapshot, overloaded_above=inf)
    return any(obstacle(task, node, used[node.name], calm) is None for node in snapshot.nodes)


def _beyond_share(
    request: PlacementRequest, others: frozenset[str], snapshot: ClusterSnapshot
) -> frozenset[str]:
    """Return all nodes but those that the executors of a replica may use.

    These are its own nodes and the emptiest others, up to its share of the nodes that the job may use.
    """
    task = driver_task(request.spec, request.spec.settings.placement.nodes)
    allowed = allowed_nodes(task, snapshot.nodes)
    able = [node for node in snapshot.nodes if allowed is None or node.name in allowed]
    own = {one.current for one in snapshot.tasks if one.job == str(request.id)}
    racks = {node.rack for node in snapshot.nodes if node.name in own}
    used = usages(current_placement(snapshot), snapshot)
    near = nodes_in_same_racks(others, snapshot.nodes)
    free = sorted(
        (node for node in able if node.name not in own and node.name not in others),
        key=lambda node: (
            node.name in near,
            node.rack not in racks,
            used[node.name].cpu - node.cores,
            node.name,
        ),
    )
    share = max(len(able) // replica_count(request.spec), 1)
    usable = own | {node.name for node in free[: max(share - len(own), 0)]}
    return frozenset(node.name for node in snapshot.nodes if node.name not in usable)
