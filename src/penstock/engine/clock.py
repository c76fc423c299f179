"""How far time has come: watermarks, batch by batch, as a pure function of what has arrived.

The mark of a vertex says that windows ending at or before it are closed. It follows the slowest lane
(source partition) that still sends, so a window is closed only when no lane can bring a record that is in
time for it. A vertex fed from behind the shuffle follows, a batch later, the mark of who feeds it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.summary import TaskSummary
from penstock.graph.windows import PROCESSING_TIME, TimeWindow

Highs = dict[int, dict[str, float]]
"""By vertex and lane, the newest event time that has arrived."""


@dataclass
class Times:
    """What is known of time after a batch. Vertices go by their names, so that it outlives the graph."""

    now: float = 0.0
    flushed: bool = False
    """Whether the sources had come to their end."""
    highs: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By vertex and lane, the newest event time and when the lane was last heard of."""
    marks: dict[str, float] = field(default_factory=dict)
    pending: dict[str, dict[str, float]] = field(default_factory=dict)
    """By bucket and vertex, the end of the earliest window that is open."""

    @property
    def earliest(self) -> dict[str, float]:
        """By vertex, the end of the earliest window that is open anywhere."""
        found: dict[str, float] = {}
        for ends in self.pending.values():
            for vertex, end in ends.items():
                found[vertex] = min(end, found.get(vertex, inf))
        return found

    @classmethod
    def of(cls, fields: dict[str, Any] | None) -> Times:
        """Read what the ledger has."""
        if not fields:
            return cls()
        highs = {v: {lane: (h, s) for lane, (h, s) in lanes.items()} for v, lanes in fields["highs"].items()}
        return cls(**{**fields, "highs": highs})


@dataclass(frozen=True)
class Clock:
    """What a batch knows of time before it has read anything."""

    now: float
    flush: bool
    """Whether everything has been read that the sources will ever have."""
    before: Times


def expect(
    blueprint: Blueprint, times: Times, lanes: dict[str, list[str]], unread: dict[str, list[str]], now: float
) -> Times:
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
    return Times(times.now, times.flushed, highs, times.marks, times.pending)


def marks_of(blueprint: Blueprint, clock: Clock, fresh: Highs) -> dict[int, float]:
    """Return the mark of each vertex, with what a batch has brought."""
    marks: dict[int, float] = {}
    before = clock.before
    for timed in blueprint.plan.timed:
        spec = blueprint.vertices[timed.vertex]
        window = spec.window
        old = before.marks.get(spec.name, -inf)
        if isinstance(window, TimeWindow) and window.time == PROCESSING_TIME:
            marks[timed.vertex] = inf if clock.flush else max(old, clock.now)
            continue
        idle = window.idle if isinstance(window, TimeWindow) else inf
        delay = window.watermark if isinstance(window, TimeWindow) else 0.0
        bounds = [before.marks.get(blueprint.vertices[up].name, -inf) for up in timed.upstream]
        if timed.sources:
            lanes = _heard(before.highs.get(spec.name, {}), fresh.get(timed.vertex, {}), clock.now)
            bounds.append(inf if clock.flush else _slowest(lanes, clock.now, idle))
        marks[timed.vertex] = max(old, min(bounds, default=-inf) - delay)
    return marks


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
    clock: Clock | None = summary.clock
    if clock is None or not blueprint.plan.timed:
        return {}
    names = [vertex.name for vertex in blueprint.vertices]
    highs = dict(clock.before.highs)
    for vertex, lanes in summary.highs.items():
        highs[names[vertex]] = _heard(highs.get(names[vertex], {}), lanes, clock.now)
    times = Times(
        clock.now,
        clock.flush,
        highs,
        {names[vertex]: mark for vertex, mark in summary.marks.items()},
        {str(bucket): ends for bucket, ends in summary.pending.items() if ends},
    )
    return asdict(times)


def due(blueprint: Blueprint, times: Times, now: float, *, at_end: bool) -> bool:
    """Whether a batch without new records would close a window. ``at_end``: nothing will ever come."""
    earliest = times.earliest
    if not earliest:
        return False
    marks = marks_of(blueprint, Clock(now, at_end, times), {})
    if at_end and {blueprint.vertices[v].name: mark for v, mark in marks.items()} != times.marks:
        return True
    return any(earliest.get(blueprint.vertices[vertex].name, inf) <= mark for vertex, mark in marks.items())
