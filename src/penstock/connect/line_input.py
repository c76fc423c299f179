"""Reads lines of text as records, in batches that do not delay a live stream."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from penstock.record import Record

_PAUSE = 0.05
_PATIENCE = 1.0
_READ = 1 << 16


def batches(descriptor: int, size: int) -> Iterator[list[bytes]]:
    """The lines of a file or pipe without their newlines, ``size`` at a time.

    A shorter batch comes when the input pauses, when its first line has waited for a second, and at the end.
    """
    pending: list[bytes] = []
    open_line: list[bytes] = []
    waiting_since = 0.0
    while True:
        if pending and (time.monotonic() - waiting_since > _PATIENCE or not _ready(descriptor)):
            yield pending
            pending = []
        data = os.read(descriptor, _READ)
        if not data:
            break
        first, *more = data.split(b"\n")
        open_line.append(first)
        if not more:
            continue
        if not pending:
            waiting_since = time.monotonic()
        pending.append(b"".join(open_line))
        pending.extend(more[:-1])
        open_line = [more[-1]]
        while len(pending) >= size:
            yield pending[:size]
            del pending[:size]
    last = b"".join(open_line)
    if last:
        pending.append(last)
    if pending:
        yield pending


def text_record(line: bytes, separator: str | None) -> Record:
    """A line as a value, or as key and value around the first separator.

    >>> text_record(b"ann=3=x", "=")
    Record(key='ann', value='3=x', ts=None)
    """
    text = line.decode("utf-8")
    if separator is None:
        return Record(None, text)
    key, found, value = text.partition(separator)
    if not found:
        raise ValueError(f"there is no separator {separator!r}")
    return Record(key, value)


def json_record(line: bytes) -> Record:
    """A line of JSON: an object says key, value and ts; anything else is the value.

    >>> json_record(b'{"key": "ann", "value": [1, 2]}'), json_record(b"3")
    (Record(key='ann', value=[1, 2], ts=None), Record(key=None, value=3, ts=None))
    """
    try:
        found = json.loads(line, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        return Record(None, found)
    unknown = sorted(found.keys() - {"key", "value", "ts"})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: a record has key, value and ts")
    if "value" not in found:
        raise ValueError("the field 'value' is missing")
    key = found.get("key")
    if isinstance(key, dict | list):
        raise ValueError("the key must be a string, a number, a boolean or null")
    return Record(key, found["value"], _time(found.get("ts")))


def _time(ts: Any) -> float | None:
    if ts is None:
        return None
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        raise ValueError("ts must be a number of seconds since the epoch, or null")
    try:
        return float(ts)
    except OverflowError:
        raise ValueError("ts is out of range") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _ready(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], _PAUSE)[0])
