"""Assigns the records of one lane to windows of time, before the shuffle, and finds late ones.

It works in the order of the lane. A ``WindowAssigner`` does it for one vertex; ``LaneWindows`` has one for
each vertex and keeps how far the lane has come. Neither knows other lanes.
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

_FAR = 1 << 62
"""An index beyond that of any window."""


class WindowAssigner:
    """Deals the records of one lane out to the windows of one vertex."""

    def __init__(self, window: TimeWindow, high: float, mark: float, *, ordered: bool = True) -> None:
        self._window = window
        self._ordered = ordered
        self.high = high
        """The newest time that has come in this lane."""
        self.mark = mark
        """Windows up to here are closed, whatever this lane brings."""
        self._cell: Cell | None = None
        self._from, self._to = inf, -inf
        """Times between these two have the same cell, as long as no further window closes."""
        self._open = 0
        self._closes_next = -inf
        self._close()

    @property
    def watermark(self) -> float:
        """How far event time has come for the records of this lane."""
        return max(self.high - self._window.watermark, self.mark) if self._ordered else self.mark

    def move_to(self, high: float) -> None:
        """Take note of the newest time of records that were put into windows elsewhere."""
        self.high = high
        self._close()

    def assign(
        self,
        records: list[Record],
        late: Callable[[Record, float], None],
        wrong: Callable[[Record, Exception], None],
    ) -> dict[Cell, list[Record]]:
        """Return the records by cell; those that are late, or that have no time, are handed on."""
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
        """Return the cell of a time, and between which times it is the same."""
        if ts is None or not isfinite(ts):
            raise ValueError("not a moment")
        window = self._window
        first, last = window.first(ts), window.last(ts)
        low = max(last * window.slide, window.end(first - 1))
        up = min((last + 1) * window.slide, window.end(first))
        opened = max(first, self._open)
        return ((opened, last) if opened <= last else None), low, up

    def _close(self) -> None:
        """Close what the lane's newest time closes."""
        mark = self.watermark
        if abs(mark) == inf:
            self._open = _FAR if mark > 0 else -_FAR
        else:
            self._open = self._window.first(mark)
        if not self._ordered or mark == inf:
            self._closes_next = inf
        elif mark == -inf:
            self._closes_next = -inf
        else:
            # A sum may round up past the moment at which the difference says that the window is closed.
            end = self._window.end(self._open) + self._window.watermark
            self._closes_next = nextafter(end, -inf)


def timeless(ts: object, error: Exception | None = None) -> Exception:
    """Return what is wrong with a record whose time is no time."""
    if ts is None:
        return ValueError("the record has no time, and windows of event time need one: set Record.ts")
    return type(error or ValueError())(f"the record's time must be a number of seconds, not {shorten(ts)}")


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
