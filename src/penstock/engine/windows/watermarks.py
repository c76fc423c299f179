"""Watermarks of each batch, as a pure function of the records read.

Windows that end at or before the watermark of their vertex are closed. The watermark follows the slowest lane
(source partition) that is not idle, so a window closes only when no such lane can send a record in time for
it. A window whose input comes from a vertex after the shuffle follows that vertex's watermark one batch
later.

A vertex without windows on the path to one relays watermarks: it has one for each such window, because each
window has its own setting of how long it waits for an idle lane.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.graph.windows import PROCESSING_TIME, TimeWindow
from penstock.plan.physical_plan import TimedVertex

Highs = dict[int, dict[str, float]]
"""High marks (newest event times) by vertex and lane."""
Relays = dict[str, dict[str, float]]
"""By name of a vertex with windows, the watermarks of the relaying vertices that it follows, by name."""


@dataclass
class TimeProgress:
    """The progress of event time after a batch. Vertices go by name, which outlives changes of the graph."""

    now: float = 0.0
    flushed: bool = False
    """Whether the sources had reached their end."""
    highs: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By vertex and lane, the high mark and the time of the lane's last record."""
    marks: dict[str, float] = field(default_factory=dict)
    pending: dict[str, dict[str, float]] = field(default_factory=dict)
    """The end of the earliest open window, by bucket and vertex."""
    relays: Relays = field(default_factory=dict)

    @property
    def earliest(self) -> dict[str, float]:
        """The end of the earliest open window of all buckets, by vertex."""
        found: dict[str, float] = {}
        for ends in self.pending.values():
            for vertex, end in ends.items():
                found[vertex] = min(end, found.get(vertex, inf))
        return found

    @classmethod
    def of(cls, fields: dict[str, Any] | None) -> TimeProgress:
        """Create the progress from the fields of a ledger entry."""
        if not fields:
            return cls()
        highs = {v: {lane: (h, s) for lane, (h, s) in lanes.items()} for v, lanes in fields["highs"].items()}
        return cls(**{**fields, "highs": highs})


@dataclass(frozen=True)
class BatchClock:
    """The time of a batch, and the progress of event time before it."""

    now: float
    flush: bool
    """Whether all records of bounded sources have been read, so that all windows close."""
    before: TimeProgress


def with_expected_lanes(
    blueprint: Blueprint,
    times: TimeProgress,
    lanes: dict[str, list[str]],
    unread: dict[str, list[str]],
    now: float,
) -> TimeProgress:
    """Add lanes with unread records: until they have sent a record, they hold back watermarks.

    So do lanes with ``unread`` records after the batch, however long they have been silent.
    """
    highs = {vertex: dict(known) for vertex, known in times.highs.items()}
    for timed in blueprint.plan.timed:
        known = highs.setdefault(blueprint.vertices[timed.vertex].name, {})
        for source in timed.sources:
            name = blueprint.vertices[source].name
            for lane in lanes.get(name, ()):
                known.setdefault(f"{name}:{lane}", (-inf, now))
            for lane in unread.get(name, ()):
                known[f"{name}:{lane}"] = (known.get(f"{name}:{lane}", (-inf, now))[0], now)
    return replace(times, highs=highs)


def vertex_watermarks(blueprint: Blueprint, clock: BatchClock, fresh: Highs) -> dict[int, float]:
    """Return the watermark of each vertex with time windows, including the records of a batch."""
    marks: dict[int, float] = {}
    for timed in blueprint.plan.timed:
        spec = blueprint.vertices[timed.vertex]
        if not isinstance(spec.window, TimeWindow):
            continue
        old = clock.before.marks.get(spec.name, -inf)
        if spec.window.time == PROCESSING_TIME:
            marks[timed.vertex] = inf if clock.flush else max(old, clock.now)
        else:
            bound = _bound(blueprint, clock, fresh, timed, spec.name, spec.window.idle)
            marks[timed.vertex] = max(old, bound - spec.window.watermark)
    return marks


def relayed_watermarks(blueprint: Blueprint, clock: BatchClock, fresh: Highs) -> Relays:
    """Return the watermarks of the relaying vertices, including the records of a batch."""
    by_vertex = {timed.vertex: timed for timed in blueprint.plan.timed}
    found: Relays = {}
    for timed in blueprint.plan.timed:
        spec = blueprint.vertices[timed.vertex]
        if not isinstance(spec.window, TimeWindow) or spec.window.time == PROCESSING_TIME:
            continue
        before, relays = clock.before.relays.get(spec.name, {}), {}
        waiting = [by_vertex[vertex] for vertex in timed.upstream]
        while waiting:
            relay = waiting.pop()
            sender = blueprint.vertices[relay.vertex]
            if not isinstance(sender.window, TimeWindow) and sender.name not in relays:
                bound = _bound(blueprint, clock, fresh, relay, spec.name, spec.window.idle)
                relays[sender.name] = max(before.get(sender.name, -inf), bound)
                waiting += [by_vertex[vertex] for vertex in relay.upstream]
        if relays:
            found[spec.name] = relays
    return found


def _bound(
    blueprint: Blueprint, clock: BatchClock, fresh: Highs, timed: TimedVertex, window: str, idle: float
) -> float:
    """Return the lowest high mark of a vertex's inputs, if lanes silent for ``idle`` are ignored."""
    before = clock.before
    bounds = []
    for up in timed.upstream:
        sender = blueprint.vertices[up]
        passed = before.marks if isinstance(sender.window, TimeWindow) else before.relays.get(window, {})
        bounds.append(passed.get(sender.name, -inf))
    if timed.sources:
        name = blueprint.vertices[timed.vertex].name
        lanes = _heard(before.highs.get(name, {}), fresh.get(timed.vertex, {}), clock.now)
        bounds.append(inf if clock.flush else _slowest(lanes, clock.now, idle))
    return min(bounds, default=-inf)


def _heard(
    known: dict[str, tuple[float, float]], fresh: dict[str, float], now: float
) -> dict[str, tuple[float, float]]:
    heard = {lane: (max(high, known.get(lane, (-inf, 0.0))[0]), now) for lane, high in fresh.items()}
    return {**known, **heard}


def _slowest(lanes: dict[str, tuple[float, float]], now: float, idle: float) -> float:
    """Return the high mark of the slowest lane that is not idle; that of the fastest if all are idle."""
    active = [high for high, seen in lanes.values() if now - seen <= idle]
    return min(active) if active else max((high for high, _ in lanes.values()), default=-inf)


def advance(blueprint: Blueprint, summary: TaskSummary) -> dict[str, Any]:
    """Return the progress of event time after a batch for the ledger; empty for a job without windows."""
    clock: BatchClock | None = summary.clock
    if clock is None or not blueprint.plan.timed:
        return {}
    names = [vertex.name for vertex in blueprint.vertices]
    highs = dict(clock.before.highs)
    for vertex, lanes in summary.highs.items():
        highs[names[vertex]] = _heard(highs.get(names[vertex], {}), lanes, clock.now)
    times = TimeProgress(
        clock.now,
        clock.flush,
        highs,
        {names[vertex]: mark for vertex, mark in summary.marks.items()},
        {str(bucket): ends for bucket, ends in summary.pending.items() if ends},
        relayed_watermarks(blueprint, clock, summary.highs),
    )
    return asdict(times)


def has_due_window(blueprint: Blueprint, times: TimeProgress, now: float, *, at_end: bool) -> bool:
    """Return whether a batch without records would close a window. ``at_end``: no more records will come."""
    earliest = times.earliest
    if not earliest:
        return False
    names = [vertex.name for vertex in blueprint.vertices]
    for _ in blueprint.plan.timed:
        clock = BatchClock(now, at_end, times)
        marks = {names[vertex]: mark for vertex, mark in vertex_watermarks(blueprint, clock, {}).items()}
        if any(earliest.get(name, inf) <= mark for name, mark in marks.items()):
            return True
        # With each batch, watermarks advance by one vertex.
        following = replace(times, marks=marks, relays=relayed_watermarks(blueprint, clock, {}))
        if following == times:
            break
        times = following
    return False
