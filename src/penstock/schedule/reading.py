"""Makes nodes and tasks, as placement is decided on them, of the documents of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from penstock.cluster.documents import Assignment, JobSpec, NodeInfo, NodeReport
from penstock.schedule.model import Node, Task

DRIVER = "driver"
EXECUTOR = "executor"


def task_id(job: str, role: str) -> str:
    """Name a task by its job and its role, ``driver`` or ``executor-ORDINAL``.

    >>> task_id("wordcount", "executor-2")
    'wordcount/executor-2'
    """
    return f"{job}/{role}"


def node_of(info: NodeInfo, report: NodeReport | None) -> Node:
    """Return a node; its load is that of the scarcer of processor and memory, 0 if it has not reported."""
    load = 0.0
    if report is not None:
        load = max(report.cpu, report.memory_used / report.memory_total if report.memory_total else 0.0)
    return Node(
        info.name, info.cores, info.memory, info.bandwidth, info.rack, info.labels, min(max(load, 0.0), 1.0)
    )


def tasks_of(spec: JobSpec, assignment: Assignment | None, nodes: Mapping[str, NodeInfo]) -> list[Task]:
    """Return the tasks of a job: what it asks for, and where that runs now; none of a job that is over.

    A driver that the user moved is pinned to that node as long as it is there. With the user's own Spark
    cluster there are no executors to place.
    """
    if assignment is None and spec.wanted != "running":
        return []
    pinned = (spec.driver,) if spec.driver in nodes else spec.nodes
    driver = driver_task(spec, pinned, assignment.node if assignment else None)
    if spec.spark_master is not None:
        return [driver]
    slots = {slot.ordinal: slot.node for slot in assignment.executors} if assignment else {}
    ordinals = _ordinals(slots, spec.resources.executors)
    return [driver, *(executor_task(spec, ordinal, slots.get(ordinal)) for ordinal in ordinals)]


def driver_task(
    spec: JobSpec, nodes: tuple[str, ...], current: str | None = None, avoid: tuple[str, ...] = ()
) -> Task:
    """Return the driver that a job asks for, and that may run on some nodes."""
    asked = spec.resources
    return Task(
        task_id(spec.name, DRIVER),
        spec.name,
        DRIVER,
        asked.cores,
        asked.memory,
        spec.labels,
        nodes,
        avoid=avoid,
        current=current,
    )


def executor_task(
    spec: JobSpec, ordinal: int, current: str | None = None, avoid: tuple[str, ...] = ()
) -> Task:
    """Return one of the executors that a job asks for."""
    return Task(
        task_id(spec.name, f"{EXECUTOR}-{ordinal}"),
        spec.name,
        EXECUTOR,
        spec.resources.executor_cores,
        spec.resources.executor_memory,
        spec.labels,
        spec.nodes,
        avoid=avoid,
        current=current,
    )


def _ordinals(there: Iterable[int], count: int) -> list[int]:
    """Return the numbers of a job's executors: those that are there, then the first free ones.

    >>> _ordinals([2, 7], 3)
    [1, 2, 7]
    """
    kept = sorted(there)[:count]
    free = (number for number in range(1, count + len(kept) + 1) if number not in kept)
    return sorted([*kept, *islice(free, count - len(kept))])
