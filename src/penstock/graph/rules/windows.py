"""bad-window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.cycles import job_arcs
from penstock.graph.tasks import CombiningTask, FunctionTask, StatefulTask
from penstock.graph.traversal import reachable
from penstock.graph.windows import CountWindow, TimeWindow
from penstock.graph.wording import shown

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def windows(job: Job) -> Iterator[Problem]:
    """A window must make sense, and stand where records can be gathered into it."""
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
        yield "with_bounds is for aggregations: code of your own is given start and end with the window"
    if vertex.index in reachable(arcs, arcs[vertex.index]):
        yield "a window cannot be part of a loop: a record that comes back would belong to the past"


def _mixed(job: Job, vertex: Vertex) -> Iterator[Problem]:
    """A function takes windows or records, so its inputs must all be of one kind."""
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
