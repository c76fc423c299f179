"""Which windows of time a record goes into, told in the order of its lane."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nextafter

from penstock.errors import shorten
from penstock.graph.windows import TimeWindow
from penstock.record import Record

Cell = tuple[int, int]
"""The first and the last window that a record is in, by index. Records of the same cell are in the same
windows, so they are kept, or merged, only once, however many windows overlap."""

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
