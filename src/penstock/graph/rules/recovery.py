"""bad-recovery: jobs whose replicas can never be rebuilt from the next window on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Problem
from penstock.graph.cycles import job_arcs
from penstock.graph.dealing import Distribution, distribution_of
from penstock.graph.kinds import NativeTask
from penstock.graph.replication import replication_of
from penstock.graph.tasks import CombiningTask, StatefulTask
from penstock.graph.traversal import reachable
from penstock.graph.windows import EVENT_TIME, CountWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex


def recovery(job: Job) -> Iterator[Problem]:
    """A replica that counts from the next window on must come to have what the others have."""
    if replication_of(job).next_window:
        for vertex, reason in _faults(job):
            yield Problem("bad-recovery", f"{vertex.kind} {vertex.label!r}: {reason}", vertex.label)


def next_window_faults(job: Job) -> list[str]:
    """Return why a replica of a job that begins without state would never be like the others, by vertex.

    All that a job remembers must be in windows of time: those that began before the replica did are
    closed some day, and from then on it has everything.
    """
    return [f"{vertex.kind} {vertex.label!r}: {reason}" for vertex, reason in _faults(job)]


def _faults(job: Job) -> Iterator[tuple[Vertex, str]]:
    arcs = job_arcs(job)
    keyed = [vertex for vertex in job.vertices if _is_keyed(job, vertex)]
    behind = set(reachable(arcs, [target for vertex in keyed for target in arcs[vertex.index]]))
    for vertex in job.vertices:
        if vertex.index in reachable(arcs, arcs[vertex.index]):
            reason: str | None = "records go round in a loop"
        else:
            reason = lasting_state(vertex.operator, vertex.window, sync=vertex.sync)
        late = vertex.index in behind and (vertex in keyed or isinstance(vertex.operator, NativeTask))
        if reason is None and late and getattr(vertex.window, "time", None) != EVENT_TIME:
            reason = "results come to it a batch late, and it has no window of event time to keep them in"
        if reason is not None:
            yield vertex, f"recovery='next-window' is not possible: {reason}. Use recovery='snapshot'"


def lasting_state(operator: Any, window: Any, *, sync: bool) -> str | None:
    """Return what a vertex remembers for longer than a window of time; None where it does not."""
    if sync:
        return "records wait for their counterparts"
    if isinstance(window, CountWindow):
        return "a window of a number of records does not end with time"
    if isinstance(operator, StatefulTask):
        if not isinstance(window, TimeWindow):
            return "its state is not in windows of time"
        if not isinstance(operator, CombiningTask):
            return "a StatefulTask keeps its state from window to window, only aggregations do not"
    return None


def _is_keyed(job: Job, vertex: Vertex) -> bool:
    """Whether records come to a vertex through the shuffle."""
    if vertex.windowed_source or vertex.sync:
        return True
    return any(
        distribution_of(job, edge) is not Distribution.CHAINED
        for edge in job.edges
        if edge.target == vertex.index
    )
