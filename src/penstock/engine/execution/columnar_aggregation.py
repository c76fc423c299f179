"""Partial aggregation of records in columns, without a Python object for each record.

Functions return None if the result would differ from that of processing record by record; the caller then
processes the records one by one. NumPy and Arrow are loaded on first use.
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
"""The Arrow functions for the partial result of each kind of task; two columns form a tuple."""

_EXACT = 1 << 52
"""Above this limit a float cannot represent adjacent whole numbers safely."""


@dataclass
class Windowed:
    """The partial results of a chunk of a lane for the windows of a task."""

    cells: dict[Cell, dict[Any, Any]] = field(default_factory=dict)
    """Partial results by cell (first and last window) and key."""
    late: list[tuple[int, float]] = field(default_factory=list)
    """Late rows, all of whose windows were closed, each with the watermark."""
    timeless: list[int] = field(default_factory=list)
    """Rows whose time is missing or not a finite number: they belong to no window."""
    high: float = -inf
    """The high mark of the lane after this chunk."""


def partials(task: CombiningTask, columns: Columns) -> dict[Any, Any] | None:
    """Return the partial result of each key; None if the records must be processed one by one."""
    groups = _Groups.over(task, columns)
    if groups is None:
        return None
    grouped = groups.by(None, {})
    return dict(zip(grouped.column("key").to_pylist(), _results(grouped), strict=True))


def windowed_partials(
    task: CombiningTask, window: TimeWindow, columns: Columns, high: float, mark: float = -inf
) -> Windowed | None:
    """Return the partial results of each cell of windows; None if records must be processed one by one.

    ``high`` is the high mark of the lane before this chunk, minus infinity at first. Windows up to ``mark``
    are already closed. Only windows of event time are supported.
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
    # The watermark at the arrival of each row: windows that end at or before it were closed.
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
        # Grouping by one number fewer is a third faster, and sufficient for ordered records.
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
    """Return the times as NumPy floats, NaN for missing ones; None if they are of another type."""
    import numpy as np
    import pyarrow as pa

    if columns.times is None:
        return np.full(len(columns), np.nan)
    if not pa.types.is_float64(columns.times.type):
        return None
    return columns.times.to_numpy(zero_copy_only=False)


def _last(ts: Any, window: TimeWindow) -> Any:
    """Return :meth:`TimeWindow.last` for an array of times."""
    import numpy as np

    index = np.floor(ts / window.slide).astype(np.int64)
    above = (index + 1) * window.slide <= ts
    return index + above - (~above & (index * window.slide > ts))


def _first(ts: Any, window: TimeWindow) -> Any:
    """Return :meth:`TimeWindow.first` for an array of times; a very low number for minus infinity."""
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
        """Return groups for a task; None if Arrow's result would differ from Python's."""
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
        """Return a table of partial results of some rows, or of all, by the given numbers and by key."""
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
    """Return partial results as Python objects; several columns form tuples."""
    names = [name for name in grouped.column_names if name == "count_all" or name.startswith("value_")]
    columns = [grouped.column(name).to_pylist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _is_key(kind: Any) -> bool:
    """Return whether Arrow's equality of keys of a type is that of Python; for floats it is not."""
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
    """Return whether Arrow aggregates a column as Python does."""
    from pyarrow import compute, types

    kind = values.type
    number = types.is_float32(kind) or types.is_float64(kind)
    if type(task) in (Min, Max):
        return bool(number or types.is_integer(kind) or types.is_date32(kind))
    if not types.is_integer(kind):
        return bool(number)
    # Arrow's integers can overflow, Python's cannot.
    ends = compute.min_max(values).as_py()
    largest = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
    return bool(largest * len(values) < 1 << 63)
