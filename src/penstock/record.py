"""The unit of data in a stream: a key, a value and an event time."""

from __future__ import annotations

from typing import Any, NamedTuple


class Record(NamedTuple):
    """One element of a stream.

    A record is a tuple because a job creates millions of them and tuples are the cheapest objects in Python.

    >>> Record("user-7", 3)
    Record(key='user-7', value=3, ts=None)
    """

    key: Any = None
    value: Any = None
    ts: float | None = None
    """Event time in seconds since the epoch, or None when the record has none."""


def as_record(item: Any) -> Record:
    """Convert an input item, a value, a ``(key, value)`` pair or a record, to a record.

    >>> as_record("a b"), as_record(("a", 1))
    (Record(key=None, value='a b', ts=None), Record(key='a', value=1, ts=None))
    """
    if type(item) is Record:
        return item
    if type(item) is tuple and len(item) == 2:
        return Record(item[0], item[1])
    return Record(None, item)
