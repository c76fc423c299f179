"""Means and how sure they are."""

from __future__ import annotations

import pytest

from penstock.schedule.simulation.run_statistics import (
    difference,
    estimate,
    over_time,
    student_t_quantile,
    summarize,
)
from penstock.schedule.simulation.simulated_recovery import Recovery
from penstock.schedule.simulation.simulator import Run, Sample


def _run(*imbalances: float, recoveries: tuple[Recovery, ...] = ()) -> Run:
    samples = tuple(
        Sample(5.0 * number, value, 4e6, 2e6, 1, 3, 0, 5) for number, value in enumerate(imbalances, start=1)
    )
    return Run("test", samples, recoveries, 2, 0)


@pytest.mark.parametrize(("freedom", "exact"), [(4, 2.776), (9, 2.262), (29, 2.045), (99, 1.984)])
def test_the_quantiles_are_those_of_the_tables(freedom: int, exact: float) -> None:
    assert student_t_quantile(freedom) == pytest.approx(exact, rel=0.01)


def test_one_run_has_no_interval_and_equal_ones_a_narrow_one() -> None:
    assert estimate([3.0]).margin == 0.0
    assert estimate([3.0, 3.0]).margin == 0.0
    assert estimate([]).count == 0
    found = estimate([1.0, 3.0])
    assert found.low < 1.0 < 3.0 < found.high


def test_figures_are_means_over_samples_and_runs() -> None:
    found = summarize([_run(0.1, 0.3), _run(0.3, 0.5)])
    assert found["imbalance"].mean == pytest.approx(0.3)
    assert found["cross_switch"].mean == 2.0
    assert found["moves"].mean == 2
    assert "recovery" not in found


def test_recoveries_count_where_there_are_some() -> None:
    recovered = _run(0.1, recoveries=(Recovery("a", 2.0, True), Recovery("b", 4.0, False)))
    found = summarize([recovered, _run(0.1)])
    assert (found["recovery"].mean, found["recovery"].count) == (3.0, 1)
    assert found["without_data"].mean == 0.5


def test_runs_are_compared_in_pairs() -> None:
    ours, theirs = [_run(0.1), _run(0.5)], [_run(0.2), _run(0.6)]
    found = difference(ours, theirs, "imbalance")
    assert found.mean == pytest.approx(-0.1)
    assert found.margin == pytest.approx(0.0, abs=1e-9)


def test_curves_have_a_point_for_each_sample() -> None:
    curve = over_time([_run(0.1, 0.3), _run(0.3, 0.5)], "imbalance")
    assert [(at, round(found.mean, 3)) for at, found in curve] == [(5.0, 0.2), (10.0, 0.4)]
