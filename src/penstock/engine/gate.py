"""The way into windows before the shuffle: one gate for the lane that a Spark task reads."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any, TypeGuard

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.engine.clock import BatchClock, Highs
from penstock.engine.columnar import windowed_partials
from penstock.engine.windowing import Cell, WindowAssigner, timeless
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import PROCESSING_TIME, TimeWindow
from penstock.record import Record


class LaneWindows:
    """Puts records into windows in the order of their lane, and remembers how far the lane has come.

    What comes out of Spark's own vertices is in no order: there no record makes another one late, and
    only what windows were closed before the batch counts.
    """

    def __init__(self, blueprint: Blueprint, clock: BatchClock, lane: str, *, ordered: bool = True) -> None:
        self._ordered = ordered
        self._blueprint = blueprint
        self._clock = clock
        self.lane = lane
        self._assigners: dict[int, WindowAssigner] = {}
        self._others: Highs = {}
        """Newest times at vertices without windows that windows lie behind."""

    @property
    def highs(self) -> Highs:
        """By vertex, how far this lane has come."""
        found = {vertex: {self.lane: assigner.high} for vertex, assigner in self._assigners.items()}
        return {v: lanes for v, lanes in {**found, **self._others}.items() if lanes[self.lane] > -inf}

    def pass_through(
        self,
        vertex: int,
        records: list[Record],
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell | None, list[Record]]:
        """Return the records for a timed vertex by cell; the cell is None where it has no windows of time."""
        window = self._blueprint.vertices[vertex].window
        if isinstance(window, TimeWindow):
            if window.time == PROCESSING_TIME:
                now = self._clock.now
                return {(window.first(now), window.last(now)): records}
            return dict(self._assigner(vertex, window).assign(records, late, wrong))
        self._notice(vertex, records)
        return {None: records}

    def merge_columns(
        self,
        vertex: int,
        columns: Columns,
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell | None, dict[Any, Any]] | None:
        """Merge columns by cell without making records of them; None where that is not possible."""
        spec = self._blueprint.vertices[vertex]
        window, task = spec.window, spec.operator
        if not (isinstance(window, TimeWindow) and isinstance(task, CombiningTask)) or not self._ordered:
            return None
        assigner = self._assigner(vertex, window)
        found = windowed_partials(task, window, columns, assigner.high, assigner.mark)
        if found is None:
            return None
        for record, (_, watermark) in zip(
            columns.chosen([row for row, _ in found.late]), found.late, strict=True
        ):
            late(record, watermark)
        for record in columns.chosen(found.timeless):
            wrong(record, timeless(record.ts))
        assigner.move_to(found.high)
        return dict(found.cells)

    def _assigner(self, vertex: int, window: TimeWindow) -> WindowAssigner:
        assigner = self._assigners.get(vertex)
        if assigner is None:
            name = self._blueprint.vertices[vertex].name
            before = self._clock.before
            high, _ = before.highs.get(name, {}).get(self.lane, (-inf, 0.0))
            assigner = WindowAssigner(window, high, before.marks.get(name, -inf), ordered=self._ordered)
            self._assigners[vertex] = assigner
        return assigner

    def _notice(self, vertex: int, records: list[Record]) -> None:
        times = [ts for _, _, ts in records if _is_moment(ts)]
        if times:
            lanes = self._others.setdefault(vertex, {self.lane: -inf})
            lanes[self.lane] = max(lanes[self.lane], *times)


def _is_moment(ts: float | None) -> TypeGuard[float]:
    try:
        return isinstance(ts, int | float) and isfinite(ts)
    except OverflowError:  # A whole number beyond all floats.
        return False
