"""Partial results of keyed vertices: created, merged and copied on both sides of the shuffle.

User code may modify its arguments, so values that are needed again are copied unless their type is immutable.
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
"""Types with immutable instances. Subclasses are not included, because they may have attributes."""
_CONTAINERS = frozenset({list, dict, set})


def copy_if_mutable(value: Any) -> Any:
    """Return an immutable value itself, and a deep copy of any other.

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
        # Keys are hashable, so they do not change.
        return value.copy()
    return deepcopy(value)


def copy_mutable_values(records: list[Record]) -> list[Record]:
    """Return records whose mutable values are copied; the list itself if none is mutable."""
    if _holds_immutable(record[1] for record in records):
        return records
    return [_owned_record(record) for record in records]


def _owned_record(record: Record) -> Record:
    """Return a record with a copied value. The key is hashable and needs no copy."""
    value = copy_if_mutable(record[1])
    return record if value is record[1] else Record(record[0], value, record[2])


def _holds_immutable(values: Any) -> bool:
    return set(map(type, values)) <= IMMUTABLE


Counters = tuple[int, ...]
Address = tuple[int, str, Counters]
"""Vertex, port and loop counters. Records with different counters are kept apart, so that the counters of
results are exact."""

FOR_INSTANCE = "dealt"
"""The form of a parcel for one instance of a vertex, whose number takes the place of the cell."""

Merge = Callable[[Any, Any], Any]

NON_MUTATING = frozenset({Count, Sum, Min, Max, Mean, Distinct, TopN, Quantiles})
"""Tasks that never modify their arguments, neither in ``merge`` nor in ``result``."""

ErrorHandlers = Callable[[int, Counters], ErrorHandler]
"""Returns the error handler of a vertex for records with the given loop counters."""


def can_merge(spec: VertexSpec) -> bool:
    """Return whether records for a vertex may be merged before they are sent."""
    return isinstance(spec.operator, CombiningTask) and not isinstance(spec.window, CountWindow)


def merge_function(spec: VertexSpec) -> Merge:
    """Return the function that merges partial results for a vertex.

    A merge may modify its arguments and then raise; if the job continues after errors, it gets copies.
    """
    task: CombiningTask = spec.operator
    merge = task.merge
    if type(task) in NON_MUTATING or not spec.policy.goes_on:
        return merge
    return lambda left, right: merge(copy_if_mutable(left), copy_if_mutable(right))


def lift_function(spec: VertexSpec) -> Callable[[Any], Any]:
    """Return the function that turns the value of a record into a mutable partial result.

    A lifted value may share objects with the record, which other edges may send elsewhere, so it is copied.
    """
    task: CombiningTask = spec.operator
    lift = task.lift
    if type(task) is Sum:
        return task.read  # For a sum, lift only calls read: this saves a call for each record.
    if type(task) in NON_MUTATING:
        return lift

    def own(value: Any) -> Any:
        return lift(value) if type(value) in IMMUTABLE else copy_if_mutable(lift(value))

    return own


def result_of(task: CombiningTask, state: Any) -> Any:
    """Return the result of a task for a copy of a state, because user code may modify its argument."""
    return task.result(state if type(task) in NON_MUTATING else copy_if_mutable(state))


def merge_one(merge: Merge, into: dict[Any, Any], key: Any, partial: Any) -> None:
    """Merge one partial result into those of other keys."""
    into[key] = merge(into[key], partial) if key in into else partial


def merge_records(
    spec: VertexSpec, records: Iterable[Record], into: dict[Any, Any], recover: ErrorHandler
) -> None:
    """Merge records into partial results by key. Every record passes here, so function calls are avoided."""
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
"""The indexes of the first and the last window that a record is in. Records of one cell are in the same
windows, so they are stored or merged only once, however many windows overlap."""
