"""The columns of parcels: joining and splitting them by key, by value and by origin.

The columns of most forms have one item per row. Those of ``GROUPS`` are the keys, the number of values of
each key, all values, and the newest time of each key (None if no key has one).

Rows that were emitted after the shuffle have an origin: the bucket that emitted them. A parcel contains the
rows of all buckets of its task, so the order in which its target opens them must follow from the origins, not
from the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from penstock.record import Record

GROUPS = "groups"
"""The form of parcels with a list of values for each key."""

ParcelColumns = tuple[Any, ...]


@dataclass(frozen=True)
class Run:
    """Consecutive rows of a parcel with one origin; the origin is None before the shuffle."""

    origin: int | None
    columns: ParcelColumns


def joined(form: str, parts: Sequence[ParcelColumns]) -> ParcelColumns:
    """Concatenate columns of one form.

    >>> joined("records", [(["a"], [1]), (["b"], [2])])
    (['a', 'b'], [1, 2])
    >>> joined(GROUPS, [(["a"], [2], [1, 2], None), (["a"], [1], [3], [5.0])])
    (['a', 'a'], [2, 1], [1, 2, 3], [None, 5.0])
    """
    if len(parts) == 1:
        return parts[0]
    if form != GROUPS:
        return tuple(list(chain.from_iterable(column)) for column in zip(*parts, strict=True))
    keys, sizes, values, times = (list(column) for column in zip(*parts, strict=True))
    whole = None
    if any(times):
        whole = list(chain.from_iterable(t or [None] * len(k) for k, t in zip(keys, times, strict=True)))
    return (*(list(chain.from_iterable(column)) for column in (keys, sizes, values)), whole)


def origin_counts(runs: Sequence[Run]) -> tuple[list[int | None], list[int]]:
    """Return the origins of the rows and how many consecutive rows have each.

    >>> origin_counts([Run(4, (["a"], [1])), Run(4, (["b"], [2])), Run(7, (["a"], [3]))])
    ([4, 7], [2, 1])
    """
    by_origin = groupby(runs, key=lambda run: run.origin)
    counts = [(origin, sum(len(run.columns[0]) for run in its)) for origin, its in by_origin]
    return [origin for origin, _ in counts], [count for _, count in counts]


def runs_of(
    form: str, origins: Iterable[int | None], counts: Sequence[int], columns: ParcelColumns
) -> Iterator[Run]:
    """Split columns by the origin of their rows.

    >>> [run.columns for run in runs_of(GROUPS, [4, 7], [1, 1], (["a", "b"], [2, 1], [1, 2, 3], None))]
    [(['a'], [2], [1, 2], None), (['b'], [1], [3], None)]
    """
    first = value = 0
    for origin, count in zip(origins, counts, strict=True):
        last = first + count
        if form == GROUPS:
            keys, sizes, values, times = columns
            end = value + sum(sizes[first:last])
            part = (keys[first:last], sizes[first:last], values[value:end], times and times[first:last])
            value = end
        else:
            part = tuple(column[first:last] for column in columns)
        yield Run(origin, part)
        first = last


def by_key(form: str, columns: ParcelColumns) -> Iterator[tuple[Any, ParcelColumns]]:
    """Yield each row with its key, as columns."""
    count = len(columns[0])
    for row in runs_of(form, [None] * count, [1] * count, columns):
        yield row.columns[0][0], row.columns


def by_value(form: str, columns: ParcelColumns) -> Iterator[tuple[Record, ParcelColumns]]:
    """Yield each value with its record, as columns: one that cannot be pickled must not block the others."""
    for key, row in by_key(form, columns):
        if form != GROUPS:
            yield Record(key, row[1][0]), row
            continue
        _, _, values, times = row
        for value in values:
            yield Record(key, value), ([key], [1], [value], times)
