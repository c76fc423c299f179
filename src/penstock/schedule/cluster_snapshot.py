"""Converts the documents of a cluster into the snapshot for placement decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice, pairwise
from math import inf

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.placement_request import PlacementRequest
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.placement_constraints import Usage
from penstock.schedule.placement_model import OVERLOADED, ClusterSnapshot, Node, Task, Traffic

DRIVER = "driver"
EXECUTOR = "executor"


def task_id(job: str | ReplicaId, role: str) -> str:
    """Name a task by its job or replica and its role, ``driver`` or ``executor-ORDINAL``.

    >>> task_id("wordcount", "executor-2")
    'wordcount/executor-2'
    """
    return f"{job}/{role}"


def replica_of_task(task: Task) -> ReplicaId | None:
    """Return the replica that a task belongs to; None for one of a document that has no such name.

    The model of placement, also used for other clusters than those of Penstock, has plain names.
    """
    return ReplicaId.find(task.job)


def node_of(info: NodeInfo, report: NodeReport | None) -> Node:
    """Return a node; its load is that of the scarcer of processor and memory, 0 if it has not reported."""
    load = 0.0
    if report is not None:
        load = max(report.cpu, report.memory_used / report.memory_total if report.memory_total else 0.0)
    return Node(
        info.name, info.cores, info.memory, info.bandwidth, info.rack, info.labels, min(max(load, 0.0), 1.0)
    )


def tasks_of(
    spec: JobSpec, assignment: Assignment | None, nodes: Mapping[str, NodeInfo], replica: int = 0
) -> list[Task]:
    """Return the tasks of a replica, with their current nodes; none of a job that is over.

    A driver that the user moved is pinned to that node unless it is missing. With the user's own Spark
    cluster there are no executors to place.
    """
    if assignment is None and spec.wanted != "running":
        return []
    pinned = (spec.driver,) if spec.driver in nodes else spec.settings.placement.nodes
    driver = driver_task(spec, pinned, assignment.node if assignment else None, replica=replica)
    if spec.settings.spark.master is not None:
        return [driver]
    slots = {slot.ordinal: slot.node for slot in assignment.executors} if assignment else {}
    ordinals = _ordinals(slots, spec.settings.resources.executors)
    return [driver, *(executor_task(spec, one, slots.get(one), replica=replica) for one in ordinals)]


def driver_task(
    spec: JobSpec,
    nodes: tuple[str, ...],
    current: str | None = None,
    avoid: tuple[str, ...] = (),
    replica: int = 0,
) -> Task:
    """Return the driver task of a replica, which may run on some nodes only."""
    asked, name = spec.settings.resources, str(ReplicaId(spec.name, replica))
    return Task(
        task_id(name, DRIVER),
        name,
        DRIVER,
        asked.cores,
        asked.memory,
        spec.settings.placement.labels,
        nodes,
        avoid=avoid,
        current=current,
    )


def executor_task(
    spec: JobSpec,
    ordinal: int,
    current: str | None = None,
    avoid: tuple[str, ...] = (),
    replica: int = 0,
) -> Task:
    """Return one of the executor tasks of a replica."""
    name = str(ReplicaId(spec.name, replica))
    return Task(
        task_id(name, f"{EXECUTOR}-{ordinal}"),
        name,
        EXECUTOR,
        spec.settings.resources.executor_cores,
        spec.settings.resources.executor_memory,
        spec.settings.placement.labels,
        spec.settings.placement.nodes,
        avoid=avoid,
        current=current,
    )


def _ordinals(there: Iterable[int], count: int) -> list[int]:
    """Return the numbers of a job's executors: those that exist, then the first free ones.

    >>> _ordinals([2, 7], 3)
    [1, 2, 7]
    """
    kept = sorted(there)[:count]
    free = (number for number in range(1, count + len(kept) + 1) if number not in kept)
    return sorted([*kept, *islice(free, count - len(kept))])


def standing_snapshot(requests: Iterable[PlacementRequest], actual: ClusterState) -> ClusterSnapshot:
    """Return the nodes with all tasks that stay there. These are not moved, so they carry no rules."""
    asked = {request.id: request for request in requests}
    tasks = [
        task
        for replica in sorted(actual.assignments, key=str)
        for task in standing_tasks(actual.assignments[replica], asked.get(replica))
        if task.current in actual.nodes
    ]
    tasks += _of_unreadable_jobs(actual)
    used: dict[str, Usage] = {name: Usage() for name in actual.nodes}
    for task in tasks:
        used[task.current or ""].add(task)
    nodes = [node_of(actual.nodes[name], actual.reports.get(name)) for name in sorted(actual.nodes)]
    snapshot = ClusterSnapshot(tuple(_no_smaller_than(node, used[node.name]) for node in nodes), tuple(tasks))
    if all(snapshot.status(node) == OVERLOADED for node in snapshot.nodes):
        return replace(snapshot, overloaded_above=inf)  # It would not distinguish any node.
    return snapshot


def _of_unreadable_jobs(actual: ClusterState) -> list[Task]:
    """Return the tasks of jobs with unreadable assignments, as far as these can be read or as they run."""
    if not actual.unreadable:  # The usual case: skip the search through all that runs.
        return []
    told = [
        Task(
            task_id(room.name, room.role),
            room.name,
            DRIVER if room.role == DRIVER else EXECUTOR,
            room.cores,
            room.memory,
            current=room.node,
        )
        for room in actual.unreadable_room
        if room.node in actual.nodes
    ]
    known = {room.name for room in actual.unreadable_room}
    return told + [
        Task(
            task_id(one.job, one.role),
            one.job,
            DRIVER if one.role == DRIVER else EXECUTOR,
            max(one.cpu, 1.0),
            one.memory,
            current=node,
        )
        for node, report in sorted(actual.reports.items())
        for one in report.workers
        if one.pid
        and node in actual.nodes
        and one.replica.job in actual.unreadable
        and one.replica not in actual.assignments
        and one.job not in known
    ]


def standing_tasks(assignment: Assignment, request: PlacementRequest | None = None) -> list[Task]:
    """Return the tasks of a job that stay where they are."""
    slots = assignment.executors if request is None else request.slots
    tasks = [
        Task(
            task_id(assignment.job, f"{EXECUTOR}-{slot.ordinal}"),
            assignment.job,
            EXECUTOR,
            slot.cores,
            slot.memory,
            current=slot.node,
        )
        for slot in slots
    ]
    if request is None or not request.driver:
        size = assignment.settings.resources
        driver = Task(
            task_id(assignment.job, DRIVER),
            assignment.job,
            DRIVER,
            size.cores,
            size.memory,
            current=assignment.node,
        )
        tasks.insert(0, driver)
    return tasks


def _no_smaller_than(node: Node, used: Usage) -> Node:
    """Return a node with room for its tasks: one that came back smaller keeps them, and gets no new ones."""
    if used.cpu <= node.cores and used.memory <= node.memory:
        return node
    return replace(node, cores=max(node.cores, used.cpu), memory=max(node.memory, used.memory))


def assumed_traffic(tasks: Iterable[Task], jobs: set[str]) -> list[Traffic]:
    """Return the assumed traffic between the tasks of each job, which is not measured.

    Every executor sends to the driver and to the next executor, at the same rate. Traffic between all pairs
    would group the same tasks with many more entries.

    >>> tasks = [Task(f"j/{role}", "j", role[:8]) for role in ("driver", "executor-1", "executor-2")]
    >>> [(pair.first, pair.second) for pair in assumed_traffic(tasks, {"j"})]
    [('j/driver', 'j/executor-1'), ('j/driver', 'j/executor-2'), ('j/executor-1', 'j/executor-2')]
    """
    by_job: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: (task.job, task.kind != DRIVER, task.id)):
        if task.job in jobs:
            by_job.setdefault(task.job, []).append(task.id)
    pairs = [(ids[0], other) for ids in by_job.values() for other in ids[1:]]
    pairs += [pair for ids in by_job.values() for pair in pairwise(ids[1:])]
    return [Traffic(first, second, 1.0) for first, second in pairs]
