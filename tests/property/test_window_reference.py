"""The reference of windows does what one finds by hand, and the random cases are of every kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from window_cases import PLACES, Case, random_cases
from window_reference import evaluate

import penstock as ps
from penstock.graph.windows import CountWindow, TimeWindow


def _case(place: str, window: Any, feed: list[tuple[Any, Any, float]], lanes: int = 1) -> Case:
    return Case(place, window, lanes, None, tuple(ps.Record(*record) for record in feed))


def test_windows_that_do_not_overlap() -> None:
    feed = [("a", 1, 3.0), ("b", 2, 9.5), ("a", 3, 1.0), ("a", 4, 10.0)]
    results, late = evaluate(_case("stateful", TimeWindow(10), feed))
    assert results == Counter(
        [
            ("a", (0, 10, (3, 1)), 9.999),  # by time, not by arrival
            ("b", (0, 10, (2,)), 9.999),
            ("a", (10, 20, (4,)), 19.999),  # the end belongs to the next one
        ]
    )
    assert not late


def test_lateness_is_told_before_a_record_counts_itself() -> None:
    feed = [("a", 1, 9.0), ("a", 2, 12.0), ("a", 3, 9.0), ("a", 4, 13.0), ("a", 5, 9.0)]
    results, late = evaluate(_case("Sum", TimeWindow(10, watermark=3), feed))
    # At 12 the watermark is 9, the first window is open; at 13 it is 10, which is its end.
    assert results == Counter([("a", 1 + 3, 9.999), ("a", 2 + 4, 19.999)])
    assert late == Counter([ps.Record("a", 5, 9.0)])


def test_a_record_counts_in_those_of_its_windows_that_are_open() -> None:
    feed = [("a", 1, 11.0), ("a", 2, 6.0), ("a", 3, 4.0)]
    results, late = evaluate(_case("stateful", TimeWindow(10, slide=5), feed))
    # At 11 the windows up to 0..10 are closed: 6 is still in 5..15, and 4 is nowhere.
    assert results == Counter([("a", (5, 15, (2, 1)), 14.999), ("a", (10, 20, (1,)), 19.999)])
    assert late == Counter([ps.Record("a", 3, 4.0)])


def test_a_lane_does_not_make_records_of_another_one_late() -> None:
    feed = [("a", 1, 100.0), ("a", 2, 1.0), ("a", 3, 101.0), ("a", 4, 2.0)]
    results, late = evaluate(_case("Count", TimeWindow(10), feed, lanes=2))
    assert results == Counter([("a", 2, 9.999), ("a", 2, 109.999)])
    assert not late
    assert evaluate(_case("Count", TimeWindow(10), feed))[1].total() == 2


def test_any_key_makes_another_one_late() -> None:
    results, late = evaluate(_case("Count", TimeWindow(10), [("a", 1, 30.0), ("b", 2, 1.0)]))
    assert results == Counter([("a", 1, 39.999)])
    assert late == Counter([ps.Record("b", 2, 1.0)])


def test_equal_times_go_by_lane_and_place() -> None:
    feed = [("a", 1, 5.0), ("a", 2, 5.0), ("a", 3, 4.0), ("a", 4, 5.0), ("a", 5, 5.0)]
    results, _ = evaluate(_case("stateful", TimeWindow(10), feed, lanes=2))
    assert results == Counter([("a", (0, 10, (3, 1, 5, 2, 4)), 9.999)])


def test_windows_of_a_source_hold_the_records_of_all_keys() -> None:
    feed = [("a", 1, 5.0), ("b", 2, 4.0), ("a", 3, 12.0)]
    results, _ = evaluate(_case("source", TimeWindow(10), feed))
    assert results == Counter(
        [
            (None, (0, 10, (("b", 2, 4.0), ("a", 1, 5.0))), 9.999),
            (None, (10, 20, (("a", 3, 12.0),)), 19.999),
        ]
    )


def test_windows_of_a_number_of_records() -> None:
    feed: list[tuple[Any, Any, float]] = [("a", n, 0.0) for n in range(7)] + [("b", 9, 0.0)]
    results, late = evaluate(_case("stateful", CountWindow(3, slide=2), feed))
    assert results == Counter(
        [
            ("a", (0, 3, (0, 1, 2)), None),
            ("a", (2, 5, (2, 3, 4)), None),
            ("a", (4, 7, (4, 5, 6)), None),
        ]
    )
    assert not late
    assert evaluate(_case("Distinct", CountWindow(4), feed))[0] == Counter([("a", 4, None)])


def test_count_windows_of_a_source_are_those_of_its_lanes() -> None:
    feed = [("a", 1, 0.0), ("b", 2, 1.0), ("c", 3, 2.0), ("d", 4, 3.0), ("e", 5, 4.0)]
    results, _ = evaluate(_case("source", CountWindow(2), feed, lanes=2))
    assert results == Counter(
        [
            (None, (0, 2, (("a", 1, 0.0), ("c", 3, 2.0))), None),
            (None, (0, 2, (("b", 2, 1.0), ("d", 4, 3.0))), None),
        ]
    )


def test_random_cases_are_of_every_kind() -> None:
    cases = random_cases(300)
    in_time = [case for case in cases if isinstance(case.window, TimeWindow)]
    assert len(in_time) >= 180
    assert len(cases) - len(in_time) >= 30
    for place in PLACES:
        assert len([case for case in in_time if case.place == place]) >= 8
        assert len([case for case in cases if case.place == place and case not in in_time]) >= 2
    for lanes in (1, 2, 3):
        assert len([case for case in cases if case.lanes == lanes]) >= 60
        assert len([case for case in cases if case.lanes == lanes and case.batch is not None]) >= 30
    assert len([case for case in in_time if case.window.slide < case.window.size]) >= 60
    assert len([case for case in in_time if evaluate(case)[1]]) >= 60
    assert len([case for case in cases if evaluate(case)[0].total() >= 5]) >= 120
    assert len([case for case in in_time if _loses_some_windows(case)]) >= 20


def _loses_some_windows(case: Case) -> bool:
    """Whether some record comes when some of its windows are closed and others are not."""
    patient = TimeWindow(case.window.size, slide=case.window.slide, watermark=1e9)
    late = tuple(evaluate(case)[1].elements())
    everywhere = _entries(Case("Count", patient, case.lanes, None, case.feed))
    in_time = _entries(Case("Count", case.window, case.lanes, None, case.feed))
    return in_time + _entries(Case("Count", patient, 1, None, late)) < everywhere


def _entries(case: Case) -> int:
    return sum(value * times for (_, value, _), times in evaluate(case)[0].items())
