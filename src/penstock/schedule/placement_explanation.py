"""The explanation of a placement: the matrix, the cost of each term, and the reasons against other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.replicas.decisions.replica_set import ReplicaSpec, nodes_of_other_replicas, replica_specs
from penstock.schedule.cluster_snapshot import replica_of_task, standing_snapshot, tasks_of
from penstock.schedule.placement_constraints import current_placement, usages
from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, Weights, cost
from penstock.schedule.placement_decision import Rejections
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task


def explain_placement(
    desired: Mapping[str, JobSpec],
    actual: ClusterState,
    job: str,
    *,
    default: str,
    weights: Weights = DEFAULT_WEIGHTS,
) -> dict[str, Any]:
    """Return the explanation as plain data. The cost is that of the whole cluster as it is."""
    spec = desired[job]
    assignment = actual.assignments.get(spec.first_replica)
    snapshot = standing_snapshot((), actual)
    own = [task for replica in replica_specs(spec) for task in _own_tasks(replica, actual)]
    others = tuple(
        task for task in snapshot.tasks if (replica := replica_of_task(task)) is None or replica.job != job
    )
    snapshot = replace(snapshot, tasks=(*others, *own))
    matrix = current_placement(snapshot)
    rejected = Rejections(snapshot, matrix, weights)
    location, kept = actual.locations.get(job), actual.kept.get(job)
    return {
        "job": job,
        "strategy": assignment.strategy if assignment else spec.settings.placement.strategy or default,
        "asked_for": spec.settings.placement.strategy or default,
        "refused": assignment.refused if assignment else "",
        "matrix": {task.id: task.current for task in own if task.current is not None},
        "cost": cost(matrix, snapshot, weights).to_plain(),
        "weights": asdict(weights),
        "rejected": {task.id: dict(rejected[task.id]) for task in own},
        "unplaced": {task.id: rejected.summary(task.id) for task in own if task.current is None},
        "nodes": _nodes(snapshot, matrix),
        "location": asdict(location) if location else None,
        "kept": asdict(kept) if kept else None,
    }


def _own_tasks(replica: ReplicaSpec, actual: ClusterState) -> list[Task]:
    """Return the tasks of a job, or of one of its replicas, which keep off the nodes of the others."""
    assignment = actual.assignments.get(replica.id)
    avoid = tuple(sorted(nodes_of_other_replicas(replica.id, actual.assignments)))
    return [
        replace(task, current=task.current if task.current in actual.nodes else None, avoid=avoid)
        for task in tasks_of(replica.spec, assignment, actual.nodes, replica.id.index)
    ]


def _nodes(snapshot: ClusterSnapshot, matrix: Matrix) -> list[dict[str, Any]]:
    used = usages(matrix, snapshot)
    return [
        {
            "name": node.name,
            "status": snapshot.status(node),
            "load": round(node.load, 3),
            "cores": node.cores,
            "cores_used": used[node.name].cpu,
            "memory": node.memory,
            "memory_used": used[node.name].memory,
            "rack": node.rack,
        }
        for node in snapshot.nodes
    ]
