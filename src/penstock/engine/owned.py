"""Values that nobody else can change: what is emitted must not be what a later call works on."""

from __future__ import annotations

from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from penstock.record import Record

IMMUTABLE = frozenset(
    {
        *(str, int, float, bool, bytes, type(None), complex),
        *(date, datetime, time, timedelta, Decimal, Fraction, UUID),
    }
)
"""Types whose instances nobody can change. Subclasses may have attributes and are not among them."""
_CONTAINERS = frozenset({list, dict, set})


def copy_if_mutable(value: Any) -> Any:
    """Return a value itself if it cannot be changed, else a copy of it that shares nothing with it.

    >>> numbers = [1, 2]
    >>> kept = owned({"all": numbers})
    >>> numbers.append(3)
    >>> kept
    {'all': [1, 2]}
    """
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is Record:
        return _owned_record(value)
    if kind is tuple and _holds_immutable(value):
        return value
    if kind in _CONTAINERS and _holds_immutable(value.values() if kind is dict else value):
        # A key has a hash, and so it does not change.
        return value.copy()
    return deepcopy(value)


def copy_mutable_values(records: list[Record]) -> list[Record]:
    """Return records whose values nobody else can change: the list itself if that holds already."""
    if _holds_immutable(record[1] for record in records):
        return records
    return [_owned_record(record) for record in records]


def _owned_record(record: Record) -> Record:
    """A key stays as it is: it has a hash."""
    value = copy_if_mutable(record[1])
    return record if value is record[1] else Record(record[0], value, record[2])


def _holds_immutable(values: Any) -> bool:
    return set(map(type, values)) <= IMMUTABLE
