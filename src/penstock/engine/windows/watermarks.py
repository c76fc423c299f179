"""Watermarks batch by batch, as a pure function of the arrived records.

The mark of a vertex says that windows ending at or before it are closed. It follows the slowest lane
(source partition) that still sends, so a window is closed only when no lane can bring a record that is in
time for it. A window fed from behind the shuffle follows, a batch later, the mark of who feeds it.

A vertex without windows on the way to one relays time: it has a mark for each window behind it, because each
window says for itself how long it waits for a silent lane.
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
"""By vertex and lane, the newest event time that has arrived."""
Relays = dict[str, dict[str, float]]
"""By window, the marks of the vertices without windows that it follows. Both go by their names."""


@dataclass
class TimeProgress:
    """What is known of time after a batch. Vertices go by their names, so that it outlives the graph."""

    now: float = 0.0
    flushed: bool = False
    """Whether the sources had come to their end."""
    highs: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By vertex and lane, the newest event time and when the lane was last heard of."""
    marks: dict[str, float] = field(default_factory=dict)
    pending: dict[str, dict[str, float]] = field(default_factory=dict)
    """By bucket and vertex, the end of the earliest window that is open."""
    relays: Relays = field(default_factory=dict)

    @property
    def earliest(self) -> dict[str, float]:
        """By vertex, the end of the earliest window that is open anywhere."""
        found: dict[str, float] = {}
        for ends in self.pending.values():
            for vertex, end in ends.items():
                found[vertex] = min(end, found.get(vertex, inf))
        return found

    @classmethod
    def of(cls, fields: dict[str, Any] | None) -> TimeProgress:
        """Read what the ledger has."""
        if not fields:
            return cls()
        highs = {v: {lane: (h, s) for lane, (h, s) in lanes.items()} for v, lanes in fields["highs"].items()}
        return cls(**{**fields, "highs": highs})


@dataclass(frozen=True)
class BatchClock:
    """What a batch knows of time before it has read anything."""

    now: float
    flush: bool
    """Whether everything has been read that the sources will ever have."""
    before: TimeProgress


def with_expected_lanes(
    blueprint: Blueprint,
    times: TimeProgress,
    lanes: dict[str, list[str]],
    unread: dict[str, list[str]],
    now: float,
) -> TimeProgress:
    """Add the lanes that have something to read: until they have sent something, they hold time up.

    So do lanes with something ``unread`` behind the batch, for however long they have been silent.
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
    """Return the mark of each vertex with windows of time, with what a batch has brought."""
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
    """Return the marks of the vertices without windows that relay time, with what a batch has brought."""
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
    """Return up to where all that a vertex gets has come, for a window that waits ``idle`` for a lane."""
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
    """Return the newest time of the slowest lane that is not silent; of the fastest when all are."""
    active = [high for high, seen in lanes.values() if now - seen <= idle]
    return min(active) if active else max((high for high, _ in lanes.values()), default=-inf)


def advance(blueprint: Blueprint, summary: TaskSummary) -> dict[str, Any]:
    """Return what is known of time after a batch, as the ledger keeps it: nothing where nothing needs it."""
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
    """Whether batches without new records would close a window. ``at_end``: nothing will ever come."""
    earliest = times.earliest
    if not earliest:
        return False
    names = [vertex.name for vertex in blueprint.vertices]
    for _ in blueprint.plan.timed:
        clock = BatchClock(now, at_end, times)
        marks = {names[vertex]: mark for vertex, mark in vertex_watermarks(blueprint, clock, {}).items()}
        if any(earliest.get(name, inf) <= mark for name, mark in marks.items()):
            return True
        # Time comes one vertex further with each batch.
        following = replace(times, marks=marks, relays=relayed_watermarks(blueprint, clock, {}))
        if following == times:
            break
        times = following
    return False
