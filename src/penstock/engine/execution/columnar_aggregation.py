"""Partial aggregation of records in columns, without making a Python object of each record.

What cannot be done this way, exactly as it would be done record by record, gives None: the caller then
takes the records one by one. NumPy and Arrow are loaded on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from penstock.columns import Columns
from penstock.engine.execution.partial_results import Cell
from penstock.graph.aggregations import Count, Max, Mean, Min, Sum
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import EVENT_TIME, TimeWindow

_ROWS: Any = ([], "count_all")
_FUNCTIONS: dict[type, tuple[Any, ...]] = {
    Count: (_ROWS,),
    Sum: (("value", "sum"),),
    Min: (("value", "min"),),
    Max: (("value", "max"),),
    Mean: (("value", "sum"), _ROWS),
}
"""What Arrow computes for the partial result of each kind of task; with two columns it is a tuple."""

_EXACT = 1 << 52
"""Above it a float is no longer told from its neighbours."""


@dataclass
class Windowed:
    """What a chunk of a lane gives to the windows of a task."""

    cells: dict[Cell, dict[Any, Any]] = field(default_factory=dict)
    """Partial results by key, for the first and the last window that are to get them."""
    late: list[tuple[int, float]] = field(default_factory=list)
    """Rows all of whose windows were closed, each with how far event time had come."""
    timeless: list[int] = field(default_factory=list)
    """Rows whose time is missing or no finite number: they are in no window."""
    high: float = -inf
    """The newest time of the lane, with this chunk."""


def partials(task: CombiningTask, columns: Columns) -> dict[Any, Any] | None:
    """Return the partial result of each key, or None when it takes the records themselves."""
    groups = _Groups.over(task, columns)
    if groups is None:
        return None
    grouped = groups.by(None, {})
    return dict(zip(grouped.column("key").to_pylist(), _results(grouped), strict=True))


def windowed_partials(
    task: CombiningTask, window: TimeWindow, columns: Columns, high: float, mark: float = -inf
) -> Windowed | None:
    """Return the partial results of each cell of windows, or None when it takes the records themselves.

    ``high`` is the newest time of the lane before this chunk, minus infinity at first. Windows up to
    ``mark`` are closed whatever the lane brings. Windows are those of event time.
    """
    import numpy as np

    groups = _Groups.over(task, columns)
    times = _times(columns)
    if groups is None or times is None or window.time != EVENT_TIME:
        return None
    timed = np.isfinite(times)
    rows = np.flatnonzero(timed)
    found = Windowed(timeless=np.flatnonzero(~timed).tolist(), high=high)
    if not len(rows):
        return found
    ts = times[rows]
    seen = [abs(float(edge)) for edge in (ts.min(), ts.max(), high, mark) if edge > -inf]
    if (max(seen) + window.size + window.watermark) / window.slide >= _EXACT:
        return None
    found.high = max(high, float(ts.max()))
    # How far event time had come when each row came: windows that end there or earlier were closed to it.
    watermark = np.maximum.accumulate(np.concatenate(([high], ts[:-1]))) - window.watermark
    watermark = np.maximum(watermark, mark)
    last = _last(ts, window)
    first = np.maximum(_first(ts, window), _first(watermark, window))
    late = first > last
    if late.any():
        found.late = list(zip(rows[late].tolist(), watermark[late].tolist(), strict=True))
        rows, first, last = rows[~late], first[~late], last[~late]
    if len(rows):
        chosen = rows if len(rows) < len(columns) else None
        found.cells = _cells(groups, chosen, first, last)
    return found


def _cells(groups: _Groups, rows: Any, first: Any, last: Any) -> dict[Cell, dict[Any, Any]]:
    """Aggregate rows by their first and last window, and by key."""
    import numpy as np

    width = last - first
    if (width == width[0]).all():
        # Grouping by one number less is a third faster, and what records in order need.
        grouped = groups.by(rows, {"last": last})
        firsts = grouped.column("last").to_numpy() - width[0]
    else:
        grouped = groups.by(rows, {"last": last, "first": first})
        firsts = grouped.column("first").to_numpy()
    lasts = grouped.column("last").to_numpy()
    order = np.lexsort((firsts, lasts))
    keys, results = (
        [column[place] for place in order.tolist()]
        for column in (grouped.column("key").to_pylist(), _results(grouped))
    )
    firsts, lasts = firsts[order], lasts[order]
    new = (np.diff(firsts) != 0) | (np.diff(lasts) != 0)
    cuts = [0, *(np.flatnonzero(new) + 1).tolist(), len(order)]
    return {
        (int(firsts[low]), int(lasts[low])): dict(zip(keys[low:high], results[low:high], strict=True))
        for low, high in pairwise(cuts)
    }


def _times(columns: Columns) -> Any:
    """Return the times as NumPy floats, NaN where there is none; None when they are of another type."""
    import numpy as np
    import pyarrow as pa

    if columns.times is None:
        return np.full(len(columns), np.nan)
    if not pa.types.is_float64(columns.times.type):
        return None
    return columns.times.to_numpy(zero_copy_only=False)


def _last(ts: Any, window: TimeWindow) -> Any:
    """Return what :meth:`TimeWindow.last` does, for many times."""
    import numpy as np

    index = np.floor(ts / window.slide).astype(np.int64)
    above = (index + 1) * window.slide <= ts
    return index + above - (~above & (index * window.slide > ts))


def _first(ts: Any, window: TimeWindow) -> Any:
    """Return what :meth:`TimeWindow.first` does, for many times; a very low number before all time."""
    import numpy as np

    begun = ts > -inf
    known = np.where(begun, ts, 0.0)
    if window.panes is not None:
        index = _last(known, window) - (window.panes - 1)
    else:
        index = np.floor((known - window.size) / window.slide).astype(np.int64) + 1
        before = (index - 1) * window.slide + window.size > known
        after = ~before & (index * window.slide + window.size <= known)
        index = index - before + after
    return np.where(begun, index, -_EXACT)


class _Groups:
    """Groups rows by window and key, and aggregates them."""

    def __init__(self, keys: Any, values: Any, functions: tuple[Any, ...]) -> None:
        self._keys = keys
        self._values = values
        self._functions = list(functions)

    @staticmethod
    def over(task: CombiningTask, columns: Columns) -> _Groups | None:
        """Return groups for a task, or None when Arrow would not give what Python does."""
        import pyarrow as pa

        functions = _FUNCTIONS.get(type(task))
        if functions is None:
            return None
        keys = columns.keys
        if keys is None or pa.types.is_null(keys.type):
            keys = pa.nulls(len(columns), pa.int8())
        elif pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        if not _is_key(keys.type):
            return None
        if type(task) is Count:
            return _Groups(keys, None, functions)
        of = getattr(task, "of", None)
        place = columns.values.schema.get_field_index(of) if isinstance(of, str) else -1
        if place < 0:
            return None
        values = columns.values.column(place)
        if values.null_count or not _is_value(task, values):
            return None
        return _Groups(keys, values, functions)

    def by(self, rows: Any, numbers: dict[str, Any]) -> Any:
        """Return a table of the partial results of some rows, or of all, by numbers of theirs and by key."""
        import pyarrow as pa

        arrays = {"key": self._keys}
        if self._values is not None:
            arrays["value"] = self._values
        if rows is not None:
            chosen = pa.array(rows)
            arrays = {name: column.take(chosen) for name, column in arrays.items()}
        arrays.update({name: pa.array(column) for name, column in numbers.items()})
        by = [*numbers, "key"]
        return pa.table(arrays).group_by(by, use_threads=False).aggregate(self._functions)


def _results(grouped: Any) -> list[Any]:
    """Return partial results as Python objects, those of several columns as tuples."""
    names = [name for name in grouped.column_names if name == "count_all" or name.startswith("value_")]
    columns = [grouped.column(name).to_pylist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _is_key(kind: Any) -> bool:
    """Whether Arrow tells keys of a type apart as Python does; for floats it does not."""
    from pyarrow import types

    return any(
        check(kind)
        for check in (
            types.is_integer,
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_boolean,
            types.is_date32,
        )
    )


def _is_value(task: CombiningTask, values: Any) -> bool:
    """Whether Arrow aggregates a column as Python does."""
    from pyarrow import compute, types

    kind = values.type
    number = types.is_float32(kind) or types.is_float64(kind)
    if type(task) in (Min, Max):
        return bool(number or types.is_integer(kind) or types.is_date32(kind))
    if not types.is_integer(kind):
        return bool(number)
    # Python's whole numbers never overflow, but Arrow's do.
    ends = compute.min_max(values).as_py()
    largest = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
    return bool(largest * len(values) < 1 << 63)
