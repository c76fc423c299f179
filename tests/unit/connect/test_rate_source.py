"""RateSource: the index decides everything; the clock decides only how many are due."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connect.rate_source import RateSource
from penstock.errors import SettingError
from penstock.record import Record


class Clock:
    """A clock that goes only when somebody sleeps."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def source(clock: Clock, per_second: float = 10, **options: Any) -> RateSource:
    return RateSource(per_second, clock=clock, sleep=clock.sleep, **options)


def read(rate: RateSource, start: Any, end: Any) -> list[Record]:
    return [r for split in rate.splits(start, end) for records in rate.read(split) for r in records]


def test_the_same_index_gives_the_same_record_after_a_restart() -> None:
    clock = Clock()
    rate = source(clock, value=lambda i: f"v{i}", key=lambda i: i % 2)
    start = rate.latest(rate.begin())
    assert start == {"start": 1_000_000, "records": 1, "waited": 0}
    clock.now += 1
    end = rate.latest(start)
    assert end["records"] == 11
    assert read(rate, start, end)[0] == Record(1, "v1", 1000.1)
    later = source(Clock(5000), value=lambda i: f"v{i}", key=lambda i: i % 2)
    assert read(later, start, end) == read(rate, start, end)
    caught_up = later.latest(end)
    assert caught_up["records"] == 40_001, "what fell due meanwhile"
    assert later.lag(end) == 39_990


def test_a_record_keeps_its_lane_however_batches_are_cut() -> None:
    clock = Clock()
    rate = source(clock, partitions=3)
    position = rate.begin()
    lanes: dict[str, list[int]] = {}
    for _ in range(7):
        end = rate.latest(position)
        for split in rate.splits(position, end):
            lane = lanes.setdefault(rate.lane(split), [])
            lane += [r.value for records in rate.read(split) for r in records]
        position, clock.now = end, clock.now + 0.5
    assert lanes == {str(n): list(range(n, 31, 3)) for n in range(3)}


def test_a_limit_is_the_end_and_nothing_before_it_is() -> None:
    clock = Clock()
    rate = source(clock, per_second=2, limit=4)
    position = rate.begin()
    ends: list[int] = []
    while (end := rate.latest(position)) != position:
        ends.append(end["records"])
        position = end
    assert rate.bounded
    assert ends[-1] == 4
    assert len(ends) > 4, "an empty batch now and then, but never the end"
    assert [r.value for r in read(rate, rate.begin(), position)] == [0, 1, 2, 3]
    assert clock.now == pytest.approx(1001.5)


def test_without_a_limit_a_source_that_has_caught_up_says_so() -> None:
    rate = source(Clock())
    first = rate.latest(rate.begin())
    assert rate.latest(first) == first
    assert not rate.bounded


def test_a_clock_that_goes_back_takes_nothing_back() -> None:
    clock = Clock()
    rate = source(clock)
    first = rate.latest(rate.begin())
    clock.now += 10
    second = rate.latest(first)
    clock.now -= 9
    assert rate.latest(second) == second


def test_a_backlog_comes_in_steps() -> None:
    clock = Clock()
    rate = source(clock, max_records_per_batch=5)
    first = rate.latest(rate.begin())
    clock.now += 10
    assert rate.latest(first)["records"] == 6


@pytest.mark.parametrize(
    "options", [{"partitions": 0}, {"value": 3}, {"key": "k"}, {"limit": -1}, {"limit": 1.5}]
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"RateSource: {next(iter(options))} takes"):
        RateSource(1, **options)
    for rate in (0, -1, float("inf"), float("nan"), True, "1"):
        with pytest.raises(SettingError, match="per_second takes a number above 0"):
            RateSource(rate)  # type: ignore[arg-type]
