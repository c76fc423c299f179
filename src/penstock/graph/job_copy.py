"""A changed copy of a job, and the list of differences between two jobs.

This is the only module that uses private fields of ``Job``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import SettingError, choices, shown
from penstock.graph.edge import ROUND_ROBIN, SAME_KEY
from penstock.graph.job import Job
from penstock.graph.operators import read_task
from penstock.graph.qos import read_qos
from penstock.graph.vertex import Vertex


def job_copy(job: Job) -> Job:
    """Return a copy of a job with its own vertices and edges, which share the code."""
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
    """Return a copy of a job with the given changes. The result may be invalid.

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
            f"vertex {shown(vertex.name)} is a {vertex.kind}, and only the code of tasks can be changed "
            f"({tasks}): pass a whole job to change it"
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


_OF_VERTICES = ("vertices", "edges")


def differences(old: Job, new: Job) -> list[str]:
    """Return descriptions of the differences between two jobs: settings, vertices, edges and code.

    >>> from penstock.graph.job_copy import changed_copy
    >>> job = Job("orders", parallelism=2)
    >>> task = job.task("double", lambda record: record.value * 2)
    >>> differences(job, changed_copy(job, parallelism=4, tasks={"double": abs}))
    ['parallelism: 4 instead of 2', "other code in 'double'"]
    """
    before, after = old.to_dict(), new.to_dict()
    found = _fields(before, after, "", _OF_VERTICES)
    old_vertices = {vertex["name"]: vertex for vertex in before["vertices"]}
    new_vertices = {vertex["name"]: vertex for vertex in after["vertices"]}
    for name, vertex in old_vertices.items():
        if name not in new_vertices:
            found.append(f"vertex {name!r} was removed")
        else:
            found += _fields(vertex, new_vertices[name], f"vertex {name!r}, ", ("operator",))
    found += [f"vertex {name!r} was added" for name in new_vertices if name not in old_vertices]
    if before["edges"] != after["edges"]:
        found.append("other edges")
    code = {vertex.label: vertex.operator for vertex in old.vertices if vertex.kind == "task"}
    recoded = [v.label for v in new.vertices if v.label in code and code[v.label] is not v.operator]
    if recoded:
        found.append(f"other code in {choices(tuple(recoded))}")
    return found


def _fields(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str, left_out: tuple[str, ...]
) -> list[str]:
    return [
        f"{where}{name}: {new.get(name)} instead of {value}"
        for name, value in old.items()
        if name not in left_out and new.get(name) != value
    ]
