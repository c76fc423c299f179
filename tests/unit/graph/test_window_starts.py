"""Every time lies in a window, whatever floating point makes of its borders."""

from __future__ import annotations

from math import nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.windows import TimeWindow


@pytest.mark.parametrize(("size", "ts"), [(1.1, 247980986.0), (0.1, 95919186.6)])
def test_a_time_whose_window_ends_at_it_once_rounded_is_in_that_window(size: float, ts: float) -> None:
    [start] = TimeWindow(size).starts(ts)
    assert start <= ts <= start + size


SIZES = st.sampled_from([0.001, 0.1, 0.3, 1 / 3, 0.7, 1.1, 10.0])


@given(SIZES, st.integers(-(10**9), 10**10), st.booleans())
def test_a_time_at_a_border_is_in_one_window_of_those_that_do_not_overlap(
    size: float, index: int, before: bool
) -> None:
    ts = index * size
    [start] = TimeWindow(size).starts(nextafter(ts, float("-inf")) if before else ts)
    assert start == (index - 1 if before else index) * size


@given(SIZES, st.integers(1, 7), st.integers(-(10**9), 10**10))
def test_a_time_at_a_border_is_in_as_many_windows_as_overlap(slide: float, panes: int, index: int) -> None:
    starts = TimeWindow(panes * slide, slide=slide).starts(index * slide)
    assert starts == [number * slide for number in range(index - panes + 1, index + 1)]


def test_windows_whose_length_is_not_whole_slides() -> None:
    window = TimeWindow(5, slide=2)
    assert [window.starts(ts) for ts in (4.0, 4.5, 5.0, 6.0)] == [[0, 2, 4], [0, 2, 4], [2, 4], [2, 4, 6]]
