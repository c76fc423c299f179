"""bad-source, bad-task, bad-sink, bad-ports, bad-config, and tasks that are not supported yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.tasks import FunctionTask, StatefulTask
from penstock.graph.wording import shown

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def operators(job: Job) -> Iterator[Problem]:
    """What a vertex runs must be what its kind asks for."""
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
        return "its items name no port, so it can have one output port only: use a Task for several"
    return ""
