"""Recovery from the next window on: when a replica that began without state has all that others have.

Seed 002, 4.2 marks the start of a window: a machine gives a window's result only if it has seen the mark of
its start. Here the marks are there already. A replica that joins is told how far time has come; windows that
had begun by then are not whole in it, all later ones are.
"""

from __future__ import annotations

from math import inf

from penstock.engine.blueprint import Blueprint
from penstock.engine.clock import TimeProgress
from penstock.graph.rules.recovery import lasting_state
from penstock.graph.windows import EVENT_TIME, PROCESSING_TIME, TimeWindow, result_time


def complete_from(blueprint: Blueprint, joined: TimeProgress) -> dict[str, float]:
    """Return, by vertex with windows of time, the mark from which on all of its windows are whole.

    That is the end of the last window that had begun when the replica joined, with ``joined`` as what the
    others knew of time; minus infinity when none had.
    """
    seen: dict[int, float] = {}
    for timed in blueprint.plan.timed:
        _last_seen(blueprint, joined, timed.vertex, seen)
    found = {}
    for vertex, last in seen.items():
        window = blueprint.vertices[vertex].window
        if isinstance(window, TimeWindow):
            found[blueprint.vertices[vertex].name] = _end(window, last)
    return found


def is_complete(blueprint: Blueprint, joined: TimeProgress, now: TimeProgress) -> bool:
    """Whether a replica that has joined without state gives, from the next batch on, what the others give.

    ``now`` is what it knows of time after its last batch. In that batch, windows may have been closed that
    were not whole. A job that remembers what no window of time ends never is.
    """
    if not _ends_with_time(blueprint):
        return False
    return all(now.marks.get(name, -inf) >= mark for name, mark in complete_from(blueprint, joined).items())


def _ends_with_time(blueprint: Blueprint) -> bool:
    """Whether all that a job remembers is forgotten with the end of a window of time."""
    plan = blueprint.plan
    if plan.loops or plan.native.feedback:
        return False
    behind = [blueprint.vertices[exchange.target] for exchange in plan.exchanges if exchange.feedback]
    return all(getattr(spec.window, "time", None) == EVENT_TIME for spec in behind) and all(
        lasting_state(spec.operator, spec.window, sync=spec.sync) is None for spec in blueprint.vertices
    )


def _last_seen(blueprint: Blueprint, joined: TimeProgress, vertex: int, seen: dict[int, float]) -> float:
    """Return up to which time a vertex may have got records that the replica lacks, or gets wrong ones."""
    if vertex in seen:
        return seen[vertex]
    spec = blueprint.vertices[vertex]
    timed = next(timed for timed in blueprint.plan.timed if timed.vertex == vertex)
    if isinstance(spec.window, TimeWindow) and spec.window.time == PROCESSING_TIME:
        seen[vertex] = joined.now if joined.marks else -inf
        return seen[vertex]
    last = max((high for high, _ in joined.highs.get(spec.name, {}).values()), default=-inf)
    for upstream in timed.upstream:
        reached = _last_seen(blueprint, joined, upstream, seen)
        window = blueprint.vertices[upstream].window
        if isinstance(window, TimeWindow) and reached > -inf:
            # Windows that are not whole still give results, and those have times up to here.
            index = window.last(reached)
            reached = result_time(index * window.slide, window.end(index))
        last = max(last, reached)
    seen[vertex] = last
    return last


def _end(window: TimeWindow, last: float) -> float:
    """Return the end of the last window that has begun at a time."""
    return window.end(window.last(last)) if abs(last) < inf else last
