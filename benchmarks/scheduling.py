"""The default strategy beside Storm's and S4's, on virtual time: SpeedStream's comparison (V.D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.placement_baselines import BASELINES
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.cli.simulation import compare, write_plots
from penstock.schedule.placement_strategies import Balanced, Strategy, TrafficFirst
from penstock.schedule.simulation.builtin_scenarios import speedstream
from penstock.schedule.simulation.run_statistics import FIGURES, Estimate, difference, summarize

SEEDS = 50
IMAGES = Path(__file__).parents[1] / "docs" / "images"
JUDGED = ("imbalance", "cross_switch")
COMPARED: Mapping[str, Callable[[], Strategy]] = {"balanced": Balanced, "traffic": TrafficFirst, **BASELINES}


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Compare on the same events; the plots of a full run go to the documentation."""
    runs = compare(speedstream(), COMPARED, range(3 if sizes.quick else SEEDS))
    write_plots("speedstream", runs, work if sizes.quick else IMAGES)
    found = {name: summarize(of) for name, of in runs.items()}
    rows = []
    for figure in JUDGED:
        for other in BASELINES:
            apart = difference(runs["balanced"], runs[other], figure)
            rows.append(_row(figure, other, found["balanced"][figure], found[other][figure], apart))
    rows += [
        _row(figure, "traffic", found["balanced"][figure], found["traffic"][figure], None)
        for figure in JUDGED
    ]
    return rows


def _row(figure: str, other: str, ours: Estimate, theirs: Estimate, apart: Estimate | None) -> Row:
    """Lower is better. It is met if the interval of the difference, seed by seed, is below 0 as a whole."""
    note = f"against {other} {ours.mean:.4f} ± {ours.margin:.4f} to {theirs.mean:.4f} ± {theirs.margin:.4f}"
    if apart is not None:
        note += f"; difference {apart.mean:.4f} ± {apart.margin:.4f}"
    return Row(
        benchmark=f"five nodes, jobs every 20 s: {FIGURES[figure].title}, `balanced`",
        other_name=other,
        unit=FIGURES[figure].unit,
        ours=ours.mean,
        other=theirs.mean,
        ratio=ours.mean / theirs.mean if theirs.mean else None,
        target="" if apart is None else "lower",
        met=None if apart is None else apart.high < 0,
        note=f"{note}; means of {ours.count} runs, 95 %",
    )
