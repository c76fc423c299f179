"""From what user code returns to records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.record import Record

_new_record = tuple.__new__
"""Makes a record without the cost of a Python-level constructor."""


def emit(result: Any, key: Any, ts: float | None, append: Callable[[Record], None]) -> None:
    """Append what a result stands for: nothing, one item, or a list or iterator of many.

    An item is a record, a ``(key, value)`` pair, or a value that keeps the incoming key.

    >>> out = []
    >>> emit([("b", 1), "bare", Record("c", 2, 5.0)], "a", None, out.append)
    >>> [tuple(record) for record in out]
    [('b', 1, None), ('a', 'bare', None), ('c', 2, 5.0)]
    """
    if result is None:
        return
    if type(result) is list or isinstance(result, Iterator):
        for item in result:
            append(to_record(item, key, ts))
    else:
        append(to_record(result, key, ts))


def to_record(item: Any, key: Any, ts: float | None) -> Record:
    """Read one emitted item."""
    kind = type(item)
    if kind is tuple and len(item) == 2:
        return _new_record(Record, (item[0], item[1], ts))
    if kind is Record:
        return item  # type: ignore[no-any-return]
    return _new_record(Record, (key, item, ts))
