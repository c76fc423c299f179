"""Windows: finite parts of an unbounded stream (seed 001 II.D).

Event-time windows depend only on the times of records, so results do not depend on how records were divided
into batches. A record is *late* if a record before it in the same source partition was newer than the end of
its last window by the watermark's delay or more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from math import floor, isfinite
from typing import Any

from penstock.errors import SettingError, shown
from penstock.record import Record
from penstock.setting_values import read_duration

EVENT_TIME = "event"
PROCESSING_TIME = "processing"

_LEAST = 0.001
_MAX_PANES = 10_000
_ROUNDING = 1e-9
"""The relative tolerance within which a multiple of the slide counts as equal to the size."""


class _WindowDefinition:
    """A window whose constructor never raises: validation reports invalid arguments, stored in ``faults``."""

    faults: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the window as plain data that is the same in every run."""
        names = [field.name for field in fields(self) if field.name != "faults"]  # type: ignore[arg-type]
        return {"type": type(self).__name__, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, init=False)
class TimeWindow(_WindowDefinition):
    """Windows of a fixed length in time; they overlap if ``slide`` is shorter.

    Windows begin at multiples of the slide since 1970, in seconds. ``watermark`` is how long a window waits
    for records that arrive out of order. ``time`` is ``"event"``, the time of the record, or
    ``"processing"``, the time at which it is processed. A source partition that has been silent for ``idle``
    no longer holds windows open. ``with_bounds`` adds the window to the result of an aggregation, as
    ``{"value": …, "start": …, "end": …}``.

    >>> TimeWindow("10s", slide="5s", watermark="2s").starts(12.0)
    [5.0, 10.0]
    """

    size: float
    slide: float
    watermark: float
    time: str
    idle: float
    with_bounds: bool
    faults: tuple[str, ...]

    def __init__(
        self,
        size: str | float,
        slide: str | float | None = None,
        *,
        watermark: str | float = 0.0,
        time: str = EVENT_TIME,
        idle: str | float = 30.0,
        with_bounds: bool = False,
    ) -> None:
        faults: list[str] = []
        length = _seconds("size", size, faults)
        step = length if slide is None else _seconds("slide", slide, faults)
        delay = _seconds("watermark", watermark, faults, least=0.0)
        silence = _seconds("idle", idle, faults, least=0.0)
        if not faults and step > length:
            faults.append(f"slide must not be longer than size ({shown(slide)} > {shown(size)})")
        if not faults and length / step > _MAX_PANES:
            faults.append(f"a record would be in more than {_MAX_PANES} windows: use a longer slide")
        if time not in (EVENT_TIME, PROCESSING_TIME):
            faults.append(f"time must be 'event' or 'processing', not {shown(time)}")
        if not isinstance(with_bounds, bool):
            faults.append(f"with_bounds must be True or False, not {shown(with_bounds)}")
        for name, value in (
            ("size", length),
            ("slide", step),
            ("watermark", delay),
            ("time", time),
            ("idle", silence),
            ("with_bounds", with_bounds),
            ("faults", tuple(faults)),
        ):
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the window as plain data; rarely used options are omitted if they are not set."""
        found = super().to_dict()
        return found if self.with_bounds else {n: value for n, value in found.items() if n != "with_bounds"}

    def starts(self, ts: float) -> list[float]:
        """Return the starts of the windows that contain a time, earliest first."""
        return [index * self.slide for index in range(self.first(ts), self.last(ts) + 1)]

    def last(self, ts: float) -> int:
        """Return the index of the last window that contains a time. Window i begins at i * slide."""
        index = floor(ts / self.slide)
        # Rounding of the division may give an adjacent window for a time at a multiple of the slide.
        if (index + 1) * self.slide <= ts:
            return index + 1
        return index - 1 if index * self.slide > ts else index

    def first(self, ts: float) -> int:
        """Return the index of the first window that has not ended at a time."""
        if self.panes is not None:
            return self.last(ts) - self.panes + 1
        index = floor((ts - self.size) / self.slide) + 1
        if self.end(index - 1) > ts:
            return index - 1
        return index + 1 if self.end(index) <= ts else index

    def end(self, index: int) -> float:
        """Return the end of a window, which itself is not in the window."""
        if self.panes is not None:
            # Equal to the start of the next window that does not overlap: a sum with other rounding would put
            # a time at the boundary into both of them or into none.
            return (index + self.panes) * self.slide
        return index * self.slide + self.size

    @cached_property
    def panes(self) -> int | None:
        """The number of windows that contain each time; None if it differs between times."""
        panes = round(self.size / self.slide)
        return panes if abs(panes * self.slide - self.size) <= _ROUNDING * self.size else None


@dataclass(frozen=True, init=False)
class CountWindow(_WindowDefinition):
    """Windows of a fixed number of records; they overlap if ``slide`` is smaller. Only full ones are emitted.

    >>> CountWindow(100, slide=10).slide
    10
    """

    size: int
    slide: int
    faults: tuple[str, ...]

    def __init__(self, size: int, slide: int | None = None) -> None:
        faults = []
        step = size if slide is None else slide
        for name, value in (("size", size), ("slide", 1 if slide is None else slide)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                faults.append(f"{name} must be a whole number of records from 1 on, not {shown(value)}")
        if not faults and step > size:
            faults.append(f"slide must not be larger than size ({step} > {size})")
        for name, found in (("size", size), ("slide", step), ("faults", tuple(faults))):
            object.__setattr__(self, name, found)


AnyWindow = TimeWindow | CountWindow


@dataclass(frozen=True)
class Window:
    """The records of one window of a source, the argument of the function after such a source.

    ``start`` and ``end`` are seconds since 1970 for a time window, the end not included; for a count window
    they are positions of records in the source partition.
    """

    records: list[Record]
    start: float
    end: float

    @property
    def values(self) -> list[Any]:
        """The values of the records."""
        return [record.value for record in self.records]


class WindowValues(list[Any]):
    """The values of one key and window, oldest first, as passed to ``update`` of a stateful task."""

    start: float
    end: float

    def __init__(self, values: list[Any], start: float, end: float) -> None:
        super().__init__(values)
        self.start = start
        self.end = end


def result_time(start: float, end: float) -> float:
    """Return the time of a window's result: its last millisecond, so that it is within the window."""
    return max(start, end - _LEAST)


def _seconds(name: str, given: Any, faults: list[str], least: float = _LEAST) -> float:
    try:
        value = read_duration(given) if isinstance(given, str) else given
    except SettingError as error:
        faults.append(f"{name}: {error}")
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < least:
        limit = "0 seconds" if least == 0 else "a millisecond"
        faults.append(f"{name} must be a duration of at least {limit}, not {shown(given)}")
        return 1.0
    return float(value)
