"""Rules about the settings of a job and its vertices.

They concern modes, guarantees, k, intervals, iteration limits, parallelism, quality of service and Spark
settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem, SettingError, choices, shown
from penstock.graph.edge import slots_of
from penstock.graph.error_policy import on_error_fault
from penstock.graph.qos import qos_faults
from penstock.graph.sink_delivery import replicas_of
from penstock.graph.tasks import COLUMNAR_TASKS
from penstock.job_settings import Replicas, value_fault
from penstock.setting_values import read_duration

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


_CHOICES = {
    "mode": (("throughput",), ("latency",)),
    "guarantee": (("exactly-once", "at-least-once", "at-most-once"), ()),
    "durability": (("none", "batch"), ()),
}
"""The supported values of each setting of a job, and known values that are not supported yet."""


def settings(job: Job) -> Iterator[Problem]:
    """The settings of a job must have supported values."""
    for setting, (supported, planned) in _CHOICES.items():
        yield from _choice(setting, getattr(job, setting), supported, planned)
    fault = on_error_fault(job.on_error)
    if fault:
        yield Problem("bad-on-error", fault)
    yield from _replicas(job)
    yield from _interval(job.interval)
    yield from _spark(job.spark)


def _replicas(job: Job) -> Iterator[Problem]:
    """Replicas are always exactly-once: they agree on one result of each batch."""
    given: Any = job.replicas
    if not isinstance(given, Replicas):
        known = choices(tuple(each.name for each in fields(Replicas)))
        yield Problem("bad-replicas", f"replicas takes Replicas, or a dict of {known}, not {shown(given)}")
        return
    for name, value in vars(given).items():
        fault = value_fault(Replicas, name, value)
        if fault:
            yield Problem(f"bad-{name.replace('_', '-')}", fault)
    said = replicas_of(job)
    weaker = isinstance(job.guarantee, str) and job.guarantee in ("at-least-once", "at-most-once")
    if said.is_replicated and weaker:
        yield Problem("bad-k", f"replicas are exactly-once: remove guarantee={shown(job.guarantee)}")
    contradiction = said.fault()
    if contradiction is not None:
        setting, reason = contradiction
        yield Problem(f"bad-{setting.replace('_', '-')}", reason)


def _interval(given: Any) -> Iterator[Problem]:
    try:
        sound = given is None or (isinstance(given, str) and read_duration(given) > 0)
    except SettingError:
        sound = False
    if not sound:
        yield Problem(
            "bad-interval", f'interval must be a duration above 0 such as "500ms", not {shown(given)}'
        )


def _choice(
    setting: str, given: Any, supported: tuple[str, ...], planned: tuple[str, ...]
) -> Iterator[Problem]:
    if isinstance(given, str) and given in supported:
        return
    if isinstance(given, str) and given in planned:
        yield Problem(
            "unsupported", f"{setting}={shown(given)} is not supported yet: use {choices(supported)}"
        )
    else:
        code = f"bad-{setting.replace('_', '-')}"
        yield Problem(code, f"{setting} must be one of {choices(supported)}, not {shown(given)}")


def _spark(given: Any) -> Iterator[Problem]:
    if not isinstance(given, dict):
        yield Problem("bad-spark", f"spark must be a dict of settings, not {shown(given)}")
        return
    for name, value in given.items():
        if not isinstance(name, str):
            yield Problem("bad-spark", f"the name of a Spark setting must be a string, not {shown(name)}")
        elif not isinstance(value, str | int | float):
            wanted = "a string, a number or a bool"
            yield Problem("bad-spark", f"Spark setting {shown(name)} must be {wanted}, not {shown(value)}")


MOST_INSTANCES = 4096


def limits(job: Job) -> Iterator[Problem]:
    """Limits and parallelism must be within their ranges."""
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
    """Return why a task cannot have its number of instances; None if it can."""
    number: Any = vertex.parallelism
    if vertex.stateful and number != slots_of(job):
        return (
            f"all tasks with state run in the same {shown(slots_of(job))} Spark tasks: give them one number,"
            " as their parallelism or that of the job"
        )
    if vertex.stateful and isinstance(job.buckets, int) and number > job.buckets:
        return f"its keys are divided into {job.buckets} buckets, which cannot run in more tasks than that"
    if isinstance(vertex.operator, COLUMNAR_TASKS):
        kind = type(vertex.operator).__name__
        return f"{kind} runs where its columns are and has no instances of its own: remove parallelism"
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
