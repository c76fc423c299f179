"""Plans the moves of drivers that lower the total cost. Pure; each move has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.replicas.decisions.replica_set import nodes_of_other_replicas
from penstock.schedule.cluster_snapshot import DRIVER, standing_snapshot, task_id
from penstock.schedule.placement_constraints import current_placement, usages
from penstock.schedule.placement_cost import cost
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task
from penstock.schedule.placement_strategies import DEFAULT_STRATEGY, Balanced
from penstock.schedule.replica_anti_affinity import nodes_in_same_racks


@dataclass(frozen=True)
class DriverMove:
    """A move of a driver to another node."""

    job: str
    origin: str
    target: str
    reason: str


def rebalance(desired: Mapping[str, JobSpec], actual: ClusterState) -> list[DriverMove]:
    """Return moves, at most one for each job, that together lower the total cost.

    Only running jobs move, and only to nodes that they may use. Jobs that a user has moved and jobs with
    node-kept data stay. Of a job's replicas only the first moves, and avoids the nodes of the others.
    """
    free = {task_id(name, DRIVER): spec for name, spec in desired.items() if _can_move(spec, actual)}
    snapshot = standing_snapshot((), actual)
    tasks = tuple(_bound(task, free[task.id], actual) if task.id in free else task for task in snapshot.tasks)
    snapshot = replace(snapshot, tasks=tasks)
    movable = tuple(task for task in tasks if task.id in free)
    if not movable:
        return []
    before = current_placement(snapshot)
    decided = decide(Balanced(), snapshot, name=DEFAULT_STRATEGY, demands=movable)
    if decided.cost.total >= cost(before, snapshot).total:
        return []
    return [
        DriverMove(free[task].name, origin, target, _reason(snapshot, before, decided.matrix, origin, target))
        for task, (origin, target) in decided.matrix.moved_from(before.places).items()
        if origin is not None and task in free
    ]


def _can_move(spec: JobSpec, actual: ClusterState) -> bool:
    assignment = actual.assignments.get(spec.first_replica)
    running = any(
        worker.phase == "running" and assignment is not None and worker.revision == assignment.revision
        for worker in actual.workers.get(spec.first_replica, ())
    )
    placed_by_user = spec.driver in actual.nodes and spec.driver_by != "rebalance"
    return (
        running and spec.wanted == "running" and spec.settings.data_location != "node" and not placed_by_user
    )


def _bound(task: Task, spec: JobSpec, actual: ClusterState) -> Task:
    others = nodes_of_other_replicas(spec.first_replica, actual.assignments)
    avoid = tuple(sorted(others | nodes_in_same_racks(others, actual.nodes.values()) - {task.current or ""}))
    return replace(
        task, labels=spec.settings.placement.labels, nodes=spec.settings.placement.nodes, avoid=avoid
    )


def _reason(snapshot: ClusterSnapshot, before: Matrix, after: Matrix, origin: str, target: str) -> str:
    told = []
    for node in (origin, target):
        then, now = _share(snapshot, before, node), _share(snapshot, after, node)
        told.append(f"{node} {then:.0%} -> {now:.0%}")
    return f"cores in use: {', '.join(told)}"


def _share(snapshot: ClusterSnapshot, matrix: Matrix, node: str) -> float:
    cores = snapshot.node_named[node].cores
    return usages(matrix, snapshot)[node].cpu / cores if cores else 0.0
