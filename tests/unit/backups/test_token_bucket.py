"""A token bucket keeps to its rate, whatever it is asked and however badly it is woken up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backups.snapshots.token_bucket import TokenBucket


class Time:
    """A clock whose sleeps take longer than asked, by what ``late`` says."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = 100.0
        self._late = late
        self.slept = 0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + self._late
        self.slept += 1


@given(
    rate=st.floats(min_value=10, max_value=1e9),
    takes=st.lists(st.integers(min_value=0, max_value=1 << 16), min_size=1, max_size=50),
    pauses=st.lists(st.floats(min_value=0, max_value=10), min_size=50, max_size=50),
)
def test_no_more_passes_than_the_rate_allows(rate: float, takes: list[int], pauses: list[float]) -> None:
    time = Time()
    bucket = TokenBucket(rate, clock=time.clock, sleep=time.sleep)
    total = 0
    for count, pause in zip(takes, pauses, strict=False):
        bucket.take(count)
        total += count
        assert total <= rate * (time.now - 100.0 + 0.25) * (1 + 1e-9) + 1e-6
        time.now += pause


@pytest.mark.parametrize("late", [0.0, 0.0005, 0.01])
def test_the_rate_is_used_up(late: float) -> None:
    """Sleeps that last too long are made up for."""
    time = Time(late)
    bucket = TokenBucket(1_000_000, clock=time.clock, sleep=time.sleep)
    for _ in range(1000):
        bucket.take(bucket.block)
    rate = 1000 * bucket.block / (time.now - 100.0)
    assert 980_000 <= rate <= 1_020_000


def test_after_a_pause_only_a_moments_worth_goes_at_once() -> None:
    time = Time()
    bucket = TokenBucket(1000, clock=time.clock, sleep=time.sleep)
    time.now += 3600
    bucket.take(250)
    assert time.slept == 0
    bucket.take(250)
    assert time.now == pytest.approx(3700.25)


def test_without_a_rate_nothing_waits() -> None:
    time = Time()
    bucket = TokenBucket(None, clock=time.clock, sleep=time.sleep)
    bucket.take(1 << 40)
    assert (time.slept, bucket.block) == (0, 1 << 16)


@pytest.mark.parametrize(("rate", "block"), [(100.0, 256), (10_000.0, 2500), (1e9, 1 << 16)])
def test_blocks_are_a_quarter_of_a_second_at_most(rate: float, block: int) -> None:
    assert TokenBucket(rate).block == block


@pytest.mark.parametrize("rate", [0, -1, 0.0])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        TokenBucket(rate)
