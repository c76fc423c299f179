"""A job like another one, with single things changed: the old one stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import SettingError
from penstock.graph.job import Job
from penstock.graph.operators import read_task
from penstock.graph.partitioning import ROUND_ROBIN, SAME_KEY
from penstock.graph.qos import read_qos
from penstock.graph.vertex import Vertex
from penstock.graph.wording import choices, shown


def job_copy(job: Job) -> Job:
    """Return a job with vertices and edges of its own, which runs the same code."""
    twin = copy.copy(job)
    twin.spark = dict(job.spark)
    twin.foreign = list(job.foreign)
    twin._edges = list(job._edges)
    twin._vertices = tuple(replace(vertex, job=twin, config=dict(vertex.config)) for vertex in job._vertices)
    return twin


def changed_copy(
    job: Job,
    *,
    parallelism: int | None = None,
    buckets: int | None = None,
    tasks: Mapping[str, Any] | None = None,
    qos: Any = None,
    vertex_qos: Mapping[str, Any] | None = None,
    on_error: Any = None,
    max_iterations: int | None = None,
) -> Job:
    """Return a copy of a job in which what is given is different. It need not be valid.

    >>> job = Job("orders", parallelism=2)
    >>> double = job.task("double", lambda record: record.value * 2)
    >>> other = changed_copy(job, parallelism=4, tasks={"double": lambda record: record.value + record.value})
    >>> job.parallelism, other.parallelism, other.vertex("double").operator is double.operator
    (2, 4, False)
    """
    twin = job_copy(job)
    if parallelism is not None:
        twin.parallelism = parallelism
    if buckets is not None:
        twin.buckets = buckets
    if qos is not None:
        twin.qos = read_qos(qos)
    if on_error is not None:
        twin.on_error = on_error
    if max_iterations is not None:
        twin.max_iterations = max_iterations
    for name, given in (tasks or {}).items():
        _give_task(twin, _vertex(twin, name), given)
    for name, given in (vertex_qos or {}).items():
        _vertex(twin, name).qos = read_qos(given)
    return twin


def _vertex(job: Job, name: str) -> Vertex:
    try:
        return job.vertex(name)
    except KeyError as unknown:
        raise SettingError(str(unknown.args[0])) from None


def _give_task(job: Job, vertex: Vertex, given: Any) -> None:
    if vertex.kind != "task":
        tasks = choices(tuple(other.label for other in job.vertices if other.kind == "task"))
        raise SettingError(
            f"vertex {shown(vertex.name)} is a {vertex.kind}, and other code can be given to tasks only"
            f" ({tasks}): give a whole job to change it"
        )
    operator = read_task(given)
    usual = SAME_KEY if vertex.stateful else ROUND_ROBIN
    vertex.operator, vertex.inputs, vertex.outputs = operator.runs, operator.inputs, operator.outputs
    vertex.faults = operator.faults
    now = SAME_KEY if vertex.stateful else ROUND_ROBIN
    job._edges = [
        replace(edge, by=now) if edge.target == vertex.index and edge.by == usual else edge
        for edge in job._edges
    ]
