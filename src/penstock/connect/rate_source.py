"""A source of records at a constant rate, identical whenever they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock import setting_values
from penstock.graph.connector_api import Position, Source, Split
from penstock.record import Record

_CHUNK = 2048
_MAX_WAIT = 0.2
"""Seconds for which a source with a limit waits for its next record before it plans an empty batch."""


class RateSource(Source):
    """Generates ``per_second`` records a second: record ``i`` has the time ``start + i / per_second``.

    Its value is ``i``, or the result of the function ``value`` for ``i``; ``key`` is a function of ``i`` too.
    The start is stored in the position, so the same index always gives the same record, and records that
    become due while the job does not run are read when it runs again. With a ``limit`` the stream ends after
    that many records, and a run until drained waits for the last one.
    """

    def __init__(
        self,
        per_second: float,
        *,
        partitions: int = 1,
        value: Callable[[int], Any] | None = None,
        key: Callable[[int], Any] | None = None,
        limit: int | None = None,
        max_records_per_batch: int = 1_000_000,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        setting_values.check_seconds("RateSource", "per_second", per_second)
        setting_values.check_whole_number("RateSource", "partitions", partitions)
        setting_values.check_function("RateSource", "value", value)
        setting_values.check_function("RateSource", "key", key)
        setting_values.check_whole_number("RateSource", "limit", limit, least=0, optional=True)
        setting_values.check_whole_number("RateSource", "max_records_per_batch", max_records_per_batch)
        self.per_second = per_second
        self.partitions = partitions
        self.value, self.key = value, key
        self.limit = limit
        self.max_records_per_batch = max_records_per_batch
        self.bounded = limit is not None
        self._clock, self._sleep = clock, sleep

    def begin(self) -> Position:
        """Start when the first batch is planned: ``latest`` replaces a start of 0 by the current time."""
        return {"start": 0, "records": 0, "waited": 0}

    def latest(self, after: Position) -> Position:
        """Read all records that are due.

        A position that does not change means the end of a source with a limit. Before the limit the position
        therefore changes even if no record is due: ``waited`` is incremented.
        """
        if after["records"] == self.limit:
            return after
        start = after["start"] or self._now()
        due = self._due(start)
        if due <= after["records"] and self.limit is not None:
            wait = start / 1000 + after["records"] / self.per_second - self._clock()
            self._sleep(min(_MAX_WAIT, max(0.0, wait)))
            due = self._due(start)
        end = min(max(due, after["records"]), after["records"] + self.max_records_per_batch)
        idle = end == after["records"] and self.limit is not None
        return {"start": start, "records": end, "waited": after["waited"] + idle}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Split the range by partition: record ``i`` belongs to partition ``i % partitions``."""
        first, last, count = start["records"], end["records"], self.partitions
        parts = [(n, first + (n - first) % count, last, end["start"]) for n in range(count)]
        return [part for part in parts if part[1] < last]

    def read(self, split: Split) -> Iterator[list[Record]]:
        """Generate the records of a split."""
        _, first, last, start = split
        begun, rate, value, key = start / 1000, self.per_second, self.value, self.key
        indices = range(first, last, self.partitions)
        for low in range(0, len(indices), _CHUNK):
            yield [
                Record(
                    None if key is None else key(index),
                    index if value is None else value(index),
                    begun + index / rate,
                )
                for index in indices[low : low + _CHUNK]
            ]

    def records_in(self, split: Split) -> int:
        """Return the number of records in the split."""
        return len(range(split[1], split[2], self.partitions))

    def lane(self, split: Split) -> str:
        """Return the number of the partition."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the partitions that have any record."""
        return [str(partition) for partition in range(min(self.partitions, end["records"]))]

    def lag(self, after: Position) -> int:
        """Return the number of due records not yet read."""
        return max(0, self._due(after["start"]) - after["records"]) if after["start"] else 0

    def describe(self) -> dict[str, Any]:
        """Return the rate and the limit."""
        return {"per_second": self.per_second, "limit": self.limit}

    def _now(self) -> int:
        return max(1, int(self._clock() * 1000))

    def _due(self, start: int) -> int:
        passed = int((self._now() - start) * self.per_second / 1000) + 1
        return passed if self.limit is None else min(self.limit, passed)
