"""Random cases for windows: a window, where it stands, the input, and how the input is cut."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.graph.windows import CountWindow, TimeWindow, Window

SOURCE, STATEFUL = "source", "stateful"
AGGREGATIONS: dict[str, type[ps.CombiningTask]] = {
    "Count": ps.Count,
    "Sum": ps.Sum,
    "Max": ps.Max,
    "Distinct": ps.Distinct,
}
PLACES = (SOURCE, STATEFUL, *AGGREGATIONS)

SOURCE_CUTS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 3), (3, 4), (3, None))
"""Numbers of lanes, and of records that a batch takes at the most, of windows on sources. They are few: only
sources that are cut alike share a run on Spark, while tasks behind one source have batches of any size."""

MOST_BATCHES = 6
MOST_RECORDS = 40


@dataclass(frozen=True)
class Case:
    """One window, its input and how the input comes."""

    place: str
    """Where the window stands: on the source, on a stateful task, or on the aggregation of this name."""
    window: TimeWindow | CountWindow
    lanes: int
    batch: int | None
    feed: tuple[ps.Record, ...]
    """All records; they are dealt out to the lanes one after the other, as a MemorySource does."""

    @property
    def by_lane(self) -> list[list[ps.Record]]:
        """The records of each lane, in order."""
        return [list(self.feed[lane :: self.lanes]) for lane in range(self.lanes)]


def random_case(seed: int) -> Case:
    """Make a case, for a seed always the same one.

    Times are whole quarters of seconds, so that no float is rounded anywhere.
    """
    dice = random.Random(seed)
    place = dice.choices(PLACES, weights=[2, 4, 3, 3, 3, 3])[0]
    if place == SOURCE:
        lanes, batch = dice.choice(SOURCE_CUTS)
    else:
        lanes, batch = dice.randint(1, 3), dice.choice([1, 2, 3, 5, 8, None])
    window: TimeWindow | CountWindow = _time_window(dice) if dice.random() < 0.75 else _count_window(dice)
    keys = dice.randint(1, 5)
    if isinstance(window, CountWindow):
        # Each key stays in one lane: the order of its records is not defined otherwise.
        keys = max(keys, lanes)
    most = MOST_RECORDS if batch is None else min(MOST_RECORDS, MOST_BATCHES * batch)
    count = dice.choice([dice.randint(0, most), most])
    pace = dice.choice([1, 3, 8])
    disorder = dice.choice([0, 8, 40, 40])
    now = dice.choice([0, 0, -50, 4 * 1_700_000_000])
    feed = []
    for position in range(count):
        now += dice.randint(0, pace)
        key = dice.randrange(keys)
        if isinstance(window, CountWindow):
            key = dice.choice(range(position % lanes, keys, lanes))
        value = dice.randint(0, 5) if place in AGGREGATIONS else position
        feed.append(ps.Record(key, value, (now - dice.randint(0, disorder)) / 4))
    return Case(place, window, lanes, batch, tuple(feed))


def _time_window(dice: random.Random) -> TimeWindow:
    size = dice.randint(1, 30)
    slide = dice.randint(max(1, size // 6), size) if dice.random() < 0.6 else size
    watermark = dice.choice([0, 0, 1, 4, 20])
    # How long a lane is silent in a test depends on the machine alone, so it must not matter.
    return TimeWindow(size / 4, slide=slide / 4, watermark=watermark / 4, idle="1h")


def _count_window(dice: random.Random) -> CountWindow:
    size = dice.randint(1, 8)
    return CountWindow(size, slide=dice.randint(1, size) if dice.random() < 0.6 else None)


SEEDS = st.integers(0, 2**32 - 1)


@cache
def random_cases(count: int) -> tuple[Case, ...]:
    """Return cases that hypothesis has drawn, the same ones every time.

    It draws their seeds: of cases drawn part by part it makes too many tiny ones.
    """
    found: dict[int, Case] = {}

    @settings(max_examples=2 * count, derandomize=True, database=None, phases=[Phase.generate])
    @given(SEEDS)
    def draw(seed: int) -> None:
        found[seed] = random_case(seed)

    draw()
    return tuple(found.values())[:count]


class Shown(ps.StatefulTask):
    """Emits each window as it was given."""

    def update(self, key: Any, values: Any, state: Any) -> tuple[Any, list[Any]]:
        assert state is None
        return None, [(key, (values.start, values.end, tuple(values)))]


def show_window(window: Window) -> Any:
    """Emit a window of a source with its records."""
    return None, (window.start, window.end, tuple(tuple(record) for record in window.records))


def add_case(job: ps.Job, name: str, case: Case, comes_from: Any = None) -> None:
    """Add a case to a job: the vertices have the case's name in theirs.

    It has a source of its own, unless the vertex or port is given that its records come from.
    """
    if comes_from is None:
        source_window = case.window if case.place == SOURCE else None
        comes_from = job.source(f"source-{name}", ps.MemorySource(), window=source_window)
    if case.place == SOURCE:
        task = job.task(f"task-{name}", show_window)
    else:
        task = job.task(f"task-{name}", AGGREGATIONS.get(case.place, Shown)(), window=case.window)
    comes_from >> task >> job.sink(f"sink-{name}", ps.MemorySink())


def windowed_vertex(name: str, case: Case) -> str:
    """Return the name of the vertex that has the window."""
    return f"source-{name}" if case.place == SOURCE else f"task-{name}"


def seen(case: Case, records: list[ps.Record]) -> Counter[Any]:
    """Return what reached the sink as a multiset. Only windows of time say what time their results have."""
    in_time = isinstance(case.window, TimeWindow)
    return Counter((key, value, ts if in_time else None) for key, value, ts in records)
