"""SpeedStream's comparison (V.D), on a few seeds: the default has less of both than all three others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from benchmarks.placement_baselines import BASELINES

from penstock.schedule.placement_strategies import Balanced, Strategy
from penstock.schedule.simulation.builtin_scenarios import speedstream
from penstock.schedule.simulation.run_statistics import summarize
from penstock.schedule.simulation.simulator import Run, simulate
from penstock.schedule.simulation.workload import draw_events

SEEDS = range(3)


@cache
def _runs(name: str) -> tuple[Run, ...]:
    scenario = speedstream()
    made: dict[str, Callable[[], Strategy]] = {"balanced": Balanced, **BASELINES}
    return tuple(
        simulate(scenario, draw_events(scenario, Random(seed)), made[name](), name=name) for seed in SEEDS
    )


@pytest.mark.parametrize("figure", ["imbalance", "cross_switch"])
@pytest.mark.parametrize("other", sorted(BASELINES))
def test_the_default_has_less(figure: str, other: str) -> None:
    ours, theirs = summarize(_runs("balanced")), summarize(_runs(other))
    assert ours[figure].mean < theirs[figure].mean


def test_none_of_them_is_refused_or_leaves_tasks_out() -> None:
    for name in ("balanced", *BASELINES):
        for run in _runs(name):
            assert run.refused == 0
            assert run.moves == 0
            assert all(sample.unplaced == 0 for sample in run.samples)
