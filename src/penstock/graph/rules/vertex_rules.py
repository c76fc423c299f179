"""Rules about single vertices: operators, signatures of their methods, and windows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem, shown
from penstock.graph.aggregations import Reduce
from penstock.graph.graph_algorithms import job_arcs, reachable
from penstock.graph.tasks import CombiningTask, FunctionTask, StatefulTask, Task
from penstock.graph.windows import CountWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def operators(job: Job) -> Iterator[Problem]:
    """The operator of a vertex must fit its kind."""
    for vertex in job.vertices:
        where = f"{vertex.kind} {vertex.label!r}"
        for fault in vertex.faults:
            yield Problem(fault.code, f"{where}: {fault.reason}", vertex.label)
        config = vertex.config
        if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
            reason = f"config must be a dict with names as keys, not {shown(config)}"
            yield Problem("bad-config", f"{where}: {reason}", vertex.label)
        reason = _unsupported(vertex)
        if reason:
            yield Problem("unsupported", f"{where}: {reason}", vertex.label)


def _unsupported(vertex: Vertex) -> str:
    task = vertex.operator
    if isinstance(task, StatefulTask | FunctionTask) and len(vertex.outputs) > 1:
        return "its items do not name a port, so it can have only one output port: use a Task for several"
    return ""


_CALLS: tuple[tuple[type, dict[str, tuple[str, ...]]], ...] = (
    (Task, {"prepare": ("config",), "execute": ("inputs", "outputs")}),
    (StatefulTask, {"prepare": ("config",), "update": ("key", "values", "state")}),
    (CombiningTask, {"lift": ("value",), "merge": ("left", "right"), "result": ("state",)}),
    (Reduce, {"function": ("left", "right")}),
)
"""The methods that a job calls, and their arguments, by kind of task."""


def signatures(job: Job) -> Iterator[Problem]:
    """Methods that a job calls must accept the job's arguments."""
    for vertex in job.vertices:
        for kind, calls in _CALLS:
            if isinstance(vertex.operator, kind):
                for name, arguments in calls.items():
                    reason = _fault(vertex.operator, name, arguments)
                    if reason is not None:
                        message = f"{vertex.kind} {vertex.label!r}: {reason}"
                        yield Problem("bad-task", message, vertex.label)


def _fault(task: Any, name: str, arguments: tuple[str, ...]) -> str | None:
    called = getattr(task, name, None)
    if not callable(called):
        return f"{name} of {type(task).__name__} must be a function, not {shown(called)}"
    own = f"{type(task).__name__}.{name}"
    if inspect.iscoroutinefunction(called):
        return f"{own} must be a plain function, not an async one"
    try:
        signature = inspect.signature(called)
    except Exception:  # some built-in functions have no signature; they are taken on trust
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        given = ", ".join(arguments)
        wanted = f"({given})" if name == "function" else f"{name}(self, {given})"
        return f"{own}{_as_written(task, name, signature)} is called with ({given}): it must be {wanted}"
    return None


def _as_written(task: Any, name: str, bound: inspect.Signature) -> str:
    """Return the parameters as declared in the class, including ``self``, without types."""
    try:
        found = inspect.signature(inspect.getattr_static(task, name))
    except Exception:
        found = bound
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    return str(inspect.Signature(plain))


def windows(job: Job) -> Iterator[Problem]:
    """A window must be valid, and belong to a source or a stateful task."""
    arcs = job_arcs(job)
    for vertex in job.vertices:
        if vertex.window is not None:
            for reason in _faults(vertex, arcs):
                yield Problem("bad-window", f"{vertex.kind} {vertex.label!r}: {reason}", vertex.label)
        yield from _mixed(job, vertex)


def _faults(vertex: Vertex, arcs: list[list[int]]) -> Iterator[str]:
    window = vertex.window
    if not isinstance(window, TimeWindow | CountWindow):
        yield f"window must be a TimeWindow or a CountWindow, not {shown(window)}"
        return
    for fault in window.faults:
        yield f"{type(window).__name__}: {fault}"
    if vertex.kind != "source" and not isinstance(vertex.operator, StatefulTask):
        yield "only sources and stateful tasks have windows: put it on the source, or use a StatefulTask"
    if (
        isinstance(window, TimeWindow)
        and window.with_bounds
        and not isinstance(vertex.operator, CombiningTask)
    ):
        yield "with_bounds is for aggregations: other code gets start and end with the window"
    if vertex.index in reachable(arcs, arcs[vertex.index]):
        yield "a window cannot be part of a loop: a record that returns would be too late for it"


def _mixed(job: Job, vertex: Vertex) -> Iterator[Problem]:
    """All inputs of a function must be windows, or all records."""
    if not isinstance(vertex.operator, FunctionTask):
        return
    senders = {
        job.vertices[edge.source].windowed_source
        for edge in job.edges
        if edge.target == vertex.index and not job.vertices[edge.source].is_side_port(edge.source_port)
    }
    if len(senders) > 1:
        reason = "gets windows from one vertex and records from another: use a function for each"
        yield Problem("bad-window", f"task {vertex.label!r} {reason}", vertex.label)
