"""Makes the snapshot that placement is decided on out of the documents of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from penstock.cluster.documents import Assignment, JobSpec, NodeInfo, NodeReport
from penstock.schedule.model import Link, Node, Snapshot, Task, Traffic

DRIVER = "driver"
EXECUTOR = "executor"


def task_id(job: str, role: str) -> str:
    """Name a task by its job and its role, ``driver`` or ``executor-ORDINAL``.

    >>> task_id("wordcount", "executor-2")
    'wordcount/executor-2'
    """
    return f"{job}/{role}"


def snapshot_of(
    nodes: Mapping[str, NodeInfo],
    reports: Mapping[str, NodeReport],
    jobs: Iterable[JobSpec],
    assignments: Mapping[str, Assignment],
    *,
    traffic: Iterable[Traffic] = (),
    links: Iterable[Link] = (),
    bandwidth: Mapping[str, float] | None = None,
    overloaded_above: float = 0.9,
) -> Snapshot:
    """Return the cluster as it is. A job that shall end keeps its tasks as long as it is assigned."""
    tasks: list[Task] = []
    for spec in sorted(jobs, key=lambda spec: spec.name):
        assignment = assignments.get(spec.name)
        if assignment is not None or spec.wanted == "running":
            tasks += tasks_of(spec, assignment, nodes)
    speeds = bandwidth or {}
    return Snapshot(
        tuple(node_of(nodes[name], reports.get(name), speeds.get(name, 0.0)) for name in sorted(nodes)),
        tuple(tasks),
        tuple(traffic),
        tuple(links),
        overloaded_above,
    )


def node_of(info: NodeInfo, report: NodeReport | None, bandwidth: float = 0.0) -> Node:
    """Return a node; its load is that of the scarcer of processor and memory, 0 if it has not reported."""
    load = 0.0
    if report is not None:
        load = max(report.cpu, report.memory_used / report.memory_total if report.memory_total else 0.0)
    return Node(
        info.name, info.cores, info.memory, bandwidth, info.rack, info.labels, min(max(load, 0.0), 1.0)
    )


def tasks_of(spec: JobSpec, assignment: Assignment | None, nodes: Mapping[str, NodeInfo]) -> list[Task]:
    """Return the tasks of a job: what it asks for, and where that runs now.

    A driver that the user moved is pinned to that node as long as it is there. With the user's own Spark
    cluster there are no executors to place.
    """
    asked = spec.resources
    pinned = (spec.driver,) if spec.driver in nodes else spec.nodes
    driver = Task(
        task_id(spec.name, DRIVER),
        spec.name,
        DRIVER,
        asked.cores,
        asked.memory,
        spec.labels,
        pinned,
        current=assignment.node if assignment else None,
    )
    if spec.spark_master is not None:
        return [driver]
    slots = {slot.ordinal: slot.node for slot in assignment.executors} if assignment else {}
    executors = [
        Task(
            task_id(spec.name, f"{EXECUTOR}-{ordinal}"),
            spec.name,
            EXECUTOR,
            asked.executor_cores,
            asked.executor_memory,
            spec.labels,
            spec.nodes,
            current=slots.get(ordinal),
        )
        for ordinal in _ordinals(slots, asked.executors)
    ]
    return [driver, *executors]


def _ordinals(there: Iterable[int], count: int) -> list[int]:
    """Return the numbers of a job's executors: those that are there, then the first free ones.

    >>> _ordinals([2, 7], 3)
    [1, 2, 7]
    """
    kept = sorted(there)[:count]
    free = (number for number in range(1, count + len(kept) + 1) if number not in kept)
    return sorted([*kept, *islice(free, count - len(kept))])
