"""Reads lines of text as records, in batches with a bounded delay for live streams."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from penstock.record import Record

_IDLE_TIMEOUT = 0.05
_MAX_DELAY = 1.0
_READ = 1 << 16


def batches(descriptor: int, size: int) -> Iterator[list[bytes]]:
    """Yield the lines of a file or pipe without their newlines, in batches of ``size``.

    A batch is shorter when the input pauses, when its first line has waited for one second, and at the end.
    """
    pending: list[bytes] = []
    open_line: list[bytes] = []
    waiting_since = 0.0
    while True:
        if pending and (time.monotonic() - waiting_since > _MAX_DELAY or not _has_input(descriptor)):
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
    """Convert a line to a value, or with a separator to key and value.

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
    """Convert a line of JSON: an object has the fields key, value and ts; anything else is the value.

    >>> json_record(b'{"key": "ann", "value": [1, 2]}'), json_record(b"3")
    (Record(key='ann', value=[1, 2], ts=None), Record(key=None, value=3, ts=None))
    """
    try:
        found = json.loads(line, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
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


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _has_input(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], _IDLE_TIMEOUT)[0])
