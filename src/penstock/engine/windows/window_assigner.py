"""Assigns the records of one lane to time windows, before the shuffle, and finds late ones.

Records are processed in the order of the lane. A ``WindowAssigner`` serves one vertex; ``LaneWindows`` has
one for each vertex and tracks the high mark of the lane. Neither depends on other lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nextafter
from typing import Any, TypeGuard

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.columnar_aggregation import windowed_partials
from penstock.engine.execution.partial_results import Cell
from penstock.engine.windows.watermarks import BatchClock, Highs
from penstock.errors import shorten
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import PROCESSING_TIME, TimeWindow
from penstock.record import Record

_BEYOND_ALL_WINDOWS = 1 << 62
"""An index greater than that of any window."""


class WindowAssigner:
    """Assigns the records of one lane to the windows of one vertex."""

    def __init__(self, window: TimeWindow, high: float, mark: float, *, ordered: bool = True) -> None:
        self._window = window
        self._ordered = ordered
        self.high = high
        """The high mark of the lane."""
        self.mark = mark
        """The watermark before this batch: windows up to it are closed."""
        self._cell: Cell | None = None
        self._from, self._to = inf, -inf
        """Times between these two have the same cell until another window closes."""
        self._open = 0
        self._closes_next = -inf
        self._close()

    @property
    def watermark(self) -> float:
        """The watermark for the records of this lane."""
        return max(self.high - self._window.watermark, self.mark) if self._ordered else self.mark

    def move_to(self, high: float) -> None:
        """Update the high mark with that of records that were assigned elsewhere."""
        self.high = high
        self._close()

    def assign(
        self,
        records: list[Record],
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell, list[Record]]:
        """Return the records by cell; late ones and those without a valid time go to the given handlers."""
        cells: dict[Cell, list[Record]] = {}
        into: list[Record] | None = None
        low, up = inf, -inf
        high = self.high
        for record in records:
            ts = record[2]
            try:
                if not low <= ts < up:  # type: ignore[operator]
                    cell, low, up = self._locate(ts)
                    into = cells.setdefault(cell, []) if cell is not None else None
            except (TypeError, ValueError, OverflowError) as error:
                wrong(record, timeless(ts, error))
                low, up = inf, -inf
                continue
            if into is None:
                late(record, self.watermark)
            else:
                into.append(record)
            if ts > high:  # type: ignore[operator]
                self.high = high = ts  # type: ignore[assignment]
                if high >= self._closes_next:
                    self._close()
                    low, up = inf, -inf
        return cells

    def _locate(self, ts: float | None) -> tuple[Cell | None, float, float]:
        """Return the cell of a time, and the bounds between which times have the same cell."""
        if ts is None or not isfinite(ts):
            raise ValueError("not a moment")
        window = self._window
        first, last = window.first(ts), window.last(ts)
        low = max(last * window.slide, window.end(first - 1))
        up = min((last + 1) * window.slide, window.end(first))
        opened = max(first, self._open)
        return ((opened, last) if opened <= last else None), low, up

    def _close(self) -> None:
        """Close the windows that the high mark closes."""
        mark = self.watermark
        if abs(mark) == inf:
            self._open = _BEYOND_ALL_WINDOWS if mark > 0 else -_BEYOND_ALL_WINDOWS
        else:
            self._open = self._window.first(mark)
        if not self._ordered or mark == inf:
            self._closes_next = inf
        elif mark == -inf:
            self._closes_next = -inf
        else:
            # Rounding of the sum may exceed the time at which the difference closes the window.
            end = self._window.end(self._open) + self._window.watermark
            self._closes_next = nextafter(end, -inf)


def timeless(ts: object, error: Exception | None = None) -> Exception:
    """Return the error of a record whose time is missing or invalid."""
    if ts is None:
        return ValueError("the record has no time, and windows of event time need one: set Record.ts")
    return type(error or ValueError())(f"the record's time must be a number of seconds, not {shorten(ts)}")


class LaneWindows:
    """Assigns records to windows in the order of their lane, and tracks the high mark of the lane.

    Results of vertices in Spark have no order: none of them makes another one late, and only windows that
    were closed before the batch are closed.
    """

    def __init__(self, blueprint: Blueprint, clock: BatchClock, lane: str, *, ordered: bool = True) -> None:
        self._ordered = ordered
        self._blueprint = blueprint
        self._clock = clock
        self.lane = lane
        self._assigners: dict[int, WindowAssigner] = {}
        self._others: Highs = {}
        """High marks at vertices without windows that relay watermarks."""

    @property
    def highs(self) -> Highs:
        """The high marks of this lane, by vertex."""
        found = {vertex: {self.lane: assigner.high} for vertex, assigner in self._assigners.items()}
        return {v: lanes for v, lanes in {**found, **self._others}.items() if lanes[self.lane] > -inf}

    def pass_through(
        self,
        vertex: int,
        records: list[Record],
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell | None, list[Record]]:
        """Return the records for a vertex by cell; the cell is None if the vertex has no time windows."""
        window = self._blueprint.vertices[vertex].window
        if isinstance(window, TimeWindow):
            if window.time == PROCESSING_TIME:
                now = self._clock.now
                return {(window.first(now), window.last(now)): records}
            return dict(self._assigner(vertex, window).assign(records, late, wrong))
        self._update_highs(vertex, records)
        return {None: records}

    def merge_columns(
        self,
        vertex: int,
        columns: Columns,
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell | None, dict[Any, Any]] | None:
        """Merge columns by cell without creating records; return None if that is not possible."""
        spec = self._blueprint.vertices[vertex]
        window, task = spec.window, spec.operator
        if not (isinstance(window, TimeWindow) and isinstance(task, CombiningTask)) or not self._ordered:
            return None
        assigner = self._assigner(vertex, window)
        found = windowed_partials(task, window, columns, assigner.high, assigner.mark)
        if found is None:
            return None
        for record, (_, watermark) in zip(
            columns.select([row for row, _ in found.late]), found.late, strict=True
        ):
            late(record, watermark)
        for record in columns.select(found.timeless):
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

    def _update_highs(self, vertex: int, records: list[Record]) -> None:
        times = [ts for _, _, ts in records if _is_moment(ts)]
        if times:
            lanes = self._others.setdefault(vertex, {self.lane: -inf})
            lanes[self.lane] = max(lanes[self.lane], *times)


def _is_moment(ts: float | None) -> TypeGuard[float]:
    try:
        return isinstance(ts, int | float) and isfinite(ts)
    except OverflowError:  # A whole number too large for a float.
        return False
