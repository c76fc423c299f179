"""bad-task: methods of tasks that cannot be called as a job calls them. Functions are checked elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem
from penstock.graph.tasks import CombiningTask, Reduce, StatefulTask, Task
from penstock.graph.wording import shown

if TYPE_CHECKING:
    from penstock.graph.job import Job

_CALLS: tuple[tuple[type, dict[str, tuple[str, ...]]], ...] = (
    (Task, {"prepare": ("config",), "execute": ("inputs", "outputs")}),
    (StatefulTask, {"prepare": ("config",), "update": ("key", "values", "state")}),
    (CombiningTask, {"lift": ("value",), "merge": ("left", "right"), "result": ("state",)}),
    (Reduce, {"function": ("left", "right")}),
)
"""By kind of task, the names that a job calls and what with."""


def signatures(job: Job) -> Iterator[Problem]:
    """What a job calls must take what it is called with."""
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
    """Return the arguments as they stand in the class, ``self`` among them, without types."""
    try:
        found = inspect.signature(inspect.getattr_static(task, name))
    except Exception:
        found = bound
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    return str(inspect.Signature(plain))
