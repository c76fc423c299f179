"""Plots of simulations: a line over time for each strategy, with a band for its confidence interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.schedule.simulation.running import Run
from penstock.schedule.simulation.summary import FIGURES, over_time

PLOTTED = ("imbalance", "cross_switch", "cross_node")
LOGARITHMIC = ("cross_switch", "cross_node")
"""Above 1 MB/s: strategies differ by orders of magnitude in these, and the best would be a line at 0."""


class NoPlotsError(PenstockError):
    """There is nothing to draw plots with."""


def require() -> None:
    """Raise NoPlotsError if matplotlib is missing: before minutes are spent on what cannot be drawn."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise NoPlotsError("plots need matplotlib: pip install 'penstock[plots]'") from None


def write_plots(scenario: str, runs: Mapping[str, Sequence[Run]], folder: Path) -> list[Path]:
    """Write an SVG file for each figure that is drawn; return the files."""
    require()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in PLOTTED:
        picture = Figure(figsize=(9, 4.5), layout="constrained")
        axes = picture.add_subplot()
        for strategy, of in runs.items():
            curve = over_time(of, name)
            times = [at for at, _ in curve]
            line = axes.plot(times, [found.mean for _, found in curve], label=strategy, linewidth=1.5)[0]
            low, high = [max(found.low, 0.0) for _, found in curve], [found.high for _, found in curve]
            axes.fill_between(times, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        figure = FIGURES[name]
        axes.set_title(f"{scenario}: {figure.title}, mean and 95 % confidence interval")
        axes.set_xlabel("virtual time (s)")
        axes.set_ylabel(f"{figure.title} ({figure.unit})" if figure.unit else figure.title)
        if name in LOGARITHMIC:
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        picture.legend(loc="outside right upper", fontsize="small")
        path = folder / f"{scenario}-{name.replace('_', '-')}.svg"
        # Without a date and with names that are always the same, the same figures give the same file.
        with rc_context({"svg.hashsalt": scenario}):
            picture.savefig(path, format="svg", metadata={"Date": None})
        written.append(path)
    return written
