"""What windows mean, in plain Python: all the input is there, nothing is cut into batches.

It shares no code with the package: windows are found by trying every one that a time may be in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import floor, inf
from typing import Any, NamedTuple

from window_cases import SOURCE, STATEFUL, Case

import penstock as ps
from penstock.graph.windows import TimeWindow


class Given(NamedTuple):
    """One window of one key, with its records in order."""

    key: Any
    start: float
    end: float
    records: list[ps.Record]


def evaluate(case: Case) -> tuple[Counter[Any], Counter[ps.Record]]:
    """Return the multiset of what reaches the sink, as (key, value, time), and that of late records."""
    in_time = isinstance(case.window, TimeWindow)
    windows, late = _time_windows(case) if in_time else (_count_windows(case), [])
    results: Counter[Any] = Counter()
    for given in windows:
        ts = max(given.start, given.end - 0.001) if in_time else None
        results[given.key, _shown(case.place, given), ts] += 1
    return results, Counter(late)


def _shown(place: str, given: Given) -> Any:
    values = [record.value for record in given.records]
    if place == SOURCE:
        return given.start, given.end, tuple(tuple(record) for record in given.records)
    if place == STATEFUL:
        return given.start, given.end, tuple(values)
    return {"Count": len, "Sum": sum, "Max": max, "Distinct": lambda them: len(set(them))}[place](values)  # type: ignore[operator]


def _time_windows(case: Case) -> tuple[list[Given], list[ps.Record]]:
    size, slide, watermark = case.window.size, case.window.slide, case.window.watermark  # type: ignore[union-attr]
    contents: dict[tuple[Any, float], list[tuple[float, int, int, ps.Record]]] = defaultdict(list)
    late = []
    for lane, records in enumerate(case.by_lane):
        newest = -inf
        for position, record in enumerate(records):
            assert record.ts is not None
            around = range(floor((record.ts - size) / slide) - 1, floor(record.ts / slide) + 2)
            starts = [n * slide for n in around if n * slide <= record.ts < n * slide + size]
            still_open = [start for start in starts if start + size > newest - watermark]
            if not still_open:
                late.append(record)
            for start in still_open:
                key = None if case.place == SOURCE else record.key
                contents[key, start].append((record.ts, lane, position, record))
            newest = max(newest, record.ts)
    windows = [
        Given(key, start, start + size, [record for *_, record in sorted(members, key=lambda m: m[:3])])
        for (key, start), members in contents.items()
    ]
    return windows, late


def _count_windows(case: Case) -> list[Given]:
    size, slide = case.window.size, case.window.slide
    sequences: dict[Any, list[ps.Record]] = defaultdict(list)
    for lane, records in enumerate(case.by_lane):
        for record in records:
            sequences[(lane, None) if case.place == SOURCE else (None, record.key)].append(record)
    return [
        Given(key, start, start + size, records[start : start + int(size)])
        for (_, key), records in sequences.items()
        for start in range(0, len(records) - int(size) + 1, int(slide))
    ]
