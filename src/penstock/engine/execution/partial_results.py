"""Partial results of keyed vertices: created, merged and copied on both sides of the shuffle.

User code may change what it is given, so values that are needed again are copied unless their type is
immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from penstock.engine.blueprint import VertexSpec
from penstock.engine.execution.vertex_step import ErrorHandler
from penstock.graph.aggregations import Count, Distinct, Max, Mean, Min, Quantiles, Sum, TopN
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow
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
    >>> kept = copy_if_mutable({"all": numbers})
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


Counters = tuple[int, ...]
Address = tuple[int, str, Counters]
"""Vertex, port and loop counters. Records with different counters are never mixed, so that what is made
of them has counters as exact as their own."""

DEALT = "dealt"
"""The form of a parcel for one instance of a vertex; it says which in the place of a window's cell."""

Merge = Callable[[Any, Any], Any]

NON_MUTATING = frozenset({Count, Sum, Min, Max, Mean, Distinct, TopN, Quantiles})
"""Tasks that never change what they are given, neither when they merge nor when they give a result."""

ErrorHandlers = Callable[[int, Counters], ErrorHandler]
"""Says how a vertex copes with a record that it cannot work on."""


def can_merge(spec: VertexSpec) -> bool:
    """Whether records for a vertex may be merged before they are sent."""
    return isinstance(spec.operator, CombiningTask) and not isinstance(spec.window, CountWindow)


def merge_function(spec: VertexSpec) -> Merge:
    """Return how partial results for a vertex are merged.

    A merge may change what it is given and raise then: where the job goes on, it gets copies.
    """
    task: CombiningTask = spec.operator
    merge = task.merge
    if type(task) in NON_MUTATING or not spec.policy.goes_on:
        return merge
    return lambda left, right: merge(copy_if_mutable(left), copy_if_mutable(right))


def lift_function(spec: VertexSpec) -> Callable[[Any], Any]:
    """Return how the value of a record becomes a partial result that may be changed.

    What is lifted may be the value itself or a part of it, and other edges lead the same record elsewhere.
    """
    task: CombiningTask = spec.operator
    lift = task.lift
    if type(task) is Sum:
        return task.read  # For a sum, lifting is reading: a call less for each record.
    if type(task) in NON_MUTATING:
        return lift

    def own(value: Any) -> Any:
        return lift(value) if type(value) in IMMUTABLE else copy_if_mutable(lift(value))

    return own


def result_of(task: CombiningTask, state: Any) -> Any:
    """Return what a task gives for a state that is needed as it is: user code may change what it is given."""
    return task.result(state if type(task) in NON_MUTATING else copy_if_mutable(state))


def merge_one(merge: Merge, into: dict[Any, Any], key: Any, partial: Any) -> None:
    """Merge one partial result into those of other keys."""
    into[key] = merge(into[key], partial) if key in into else partial


def merge_records(
    spec: VertexSpec, records: Iterable[Record], into: dict[Any, Any], recover: ErrorHandler
) -> None:
    """Merge records into partial results by key. It avoids function calls: every record comes here."""
    task: CombiningTask = spec.operator
    merge, lift = merge_function(spec), lift_function(spec)
    rest = iter(records)
    while True:
        record = Record()
        try:
            if type(task) is Count:
                seen = into.get
                for record in rest:
                    key = record[0]
                    into[key] = seen(key, 0) + 1
            else:
                for record in rest:
                    key = record[0]
                    value = lift(record[1])
                    into[key] = merge(into[key], value) if key in into else value
        except BaseException as error:
            again = lambda record=record: merge_one(merge, into, record[0], lift(record[1]))  # noqa: E731
            recover(record, error, again)
        else:
            return


def keep_latest_times(stamps: dict[Any, float], records: list[Record]) -> None:
    """Keep the newest time of each key."""
    for key, _, ts in records:
        if ts is not None and ts > stamps.get(key, float("-inf")):
            stamps[key] = ts


Cell = tuple[int, int]
"""The first and the last window that a record is in, by index. Records of the same cell are in the same
windows, so they are kept, or merged, only once, however many windows overlap."""
