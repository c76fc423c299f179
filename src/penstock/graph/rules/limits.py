"""bad-max-iterations, bad-parallelism, bad-buckets, bad-qos of job and vertices; bad-on-error of vertices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem
from penstock.graph.dealing import buckets_of
from penstock.graph.kinds import COLUMNAR_TASKS
from penstock.graph.on_error import on_error_fault
from penstock.graph.qos import qos_faults
from penstock.graph.wording import shown

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex

MOST_INSTANCES = 4096


def limits(job: Job) -> Iterator[Problem]:
    """Limits must be numbers that make sense."""
    yield from _limits_of(job, "job", None)
    yield from _instances("buckets", job.buckets, "job", None)
    for vertex in job.vertices:
        yield from _limits_of(vertex, f"vertex {vertex.label!r}", vertex.label)
        if _whole(vertex.parallelism) and (reason := _wrong_number(job, vertex)):
            yield Problem("bad-parallelism", f"vertex {vertex.label!r}: {reason}", vertex.label)
        fault = on_error_fault(vertex.on_error) if vertex.on_error is not None else None
        if fault:
            yield Problem("bad-on-error", f"vertex {vertex.label!r}: {fault}", vertex.label)


def _wrong_number(job: Job, vertex: Vertex) -> str | None:
    """Return why a task cannot have its number of instances; None where it can."""
    if vertex.stateful and vertex.parallelism != buckets_of(job):
        return (
            f"its instances are the parts of its keys, of which the job has {shown(buckets_of(job))}: say "
            "one number for all tasks with state, by buckets= of the job or by their parallelism"
        )
    if isinstance(vertex.operator, COLUMNAR_TASKS):
        kind = type(vertex.operator).__name__
        return f"{kind} runs where its columns are and has no instances of its own: leave parallelism out"
    return None


def _limits_of(owner: Job | Vertex, where: str, vertex: str | None) -> Iterator[Problem]:
    iterations: Any = owner.max_iterations
    if iterations is not None and not (_whole(iterations) and iterations >= 0):
        reason = f"max_iterations must be a whole number from 0 on, not {shown(iterations)}"
        yield Problem("bad-max-iterations", f"{where}: {reason}", vertex)
    yield from _instances("parallelism", owner.parallelism, where, vertex)
    for reason in qos_faults(owner.qos):
        yield Problem("bad-qos", f"{where}: qos: {reason}", vertex)


def _instances(setting: str, given: Any, where: str, vertex: str | None) -> Iterator[Problem]:
    if given is not None and not (_whole(given) and 1 <= given <= MOST_INSTANCES):
        reason = f"{setting} must be a whole number from 1 to {MOST_INSTANCES}, not {shown(given)}"
        yield Problem(f"bad-{setting}", f"{where}: {reason}", vertex)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
