"""Statistics of several runs: means, confidence intervals, and series over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev

from penstock.schedule.simulation.simulator import Run, Sample


@dataclass(frozen=True)
class Estimate:
    """A mean over runs, with its 95 % confidence interval."""

    mean: float
    margin: float
    """Half the width of the interval; 0 where there is one run only."""
    count: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.margin

    def to_plain(self) -> dict[str, float]:
        """Return what JSON can hold."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "runs": self.count}


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean, with its interval by Student's distribution.

    >>> found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.mean, round(found.margin, 2)
    (3.0, 1.96)
    """
    count = len(values)
    if count < 2:
        return Estimate(fmean(values) if values else 0.0, 0.0, count)
    return Estimate(fmean(values), student_t_quantile(count - 1) * stdev(values) / sqrt(count), count)


def student_t_quantile(freedom: int, confidence: float = 0.95) -> float:
    """Return how many standard errors an interval has on each side.

    By the expansion of Fisher and Cornish; it is within 1 % for 4 degrees of freedom and exact for many.

    >>> round(student_t_quantile(29), 3), round(student_t_quantile(9), 3)
    (2.045, 2.262)
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


@dataclass(frozen=True)
class Figure:
    """Something that a run is judged by; less is better."""

    title: str
    unit: str
    of: Callable[[Run], float | None]
    """Its value in a run; None if the run has none."""
    sampled: Callable[[Sample], float] | None = None
    """Its value in a sample, if it goes over time."""


def _mean(of: Callable[[Sample], float]) -> Callable[[Run], float]:
    return lambda run: fmean(of(sample) for sample in run.samples) if run.samples else 0.0


def _over_time(title: str, unit: str, of: Callable[[Sample], float]) -> Figure:
    return Figure(title, unit, _mean(of), of)


def _recovery(run: Run) -> float | None:
    return fmean(recovery.seconds for recovery in run.recoveries) if run.recoveries else None


FIGURES: Mapping[str, Figure] = {
    "imbalance": _over_time("imbalance S", "", lambda sample: sample.imbalance),
    "cross_switch": _over_time("between switches", "MB/s", lambda sample: sample.cross_switch / 1e6),
    "cross_node": _over_time("between nodes", "MB/s", lambda sample: sample.cross_node / 1e6),
    "moves": Figure("moves", "tasks", lambda run: run.moves),
    "unplaced": _over_time("without a node", "tasks", lambda sample: sample.unplaced),
    "recovery": Figure("recovery", "s", _recovery),
    "without_data": Figure(
        "restarted without data",
        "tasks",
        lambda run: sum(1 for recovery in run.recoveries if not recovery.whole),
    ),
}


def summarize(runs: Sequence[Run]) -> dict[str, Estimate]:
    """Return the figures of one strategy's runs; one that no run has is left out."""
    found = {}
    for name, figure in FIGURES.items():
        values = [value for run in runs if (value := figure.of(run)) is not None]
        if values:
            found[name] = estimate(values)
    return found


def difference(ours: Sequence[Run], theirs: Sequence[Run], name: str) -> Estimate:
    """Return by how much a figure of ours is larger, run by run with the same events."""
    of = FIGURES[name].of
    pairs = ((of(one), of(other)) for one, other in zip(ours, theirs, strict=True))
    return estimate([one - other for one, other in pairs if one is not None and other is not None])


def over_time(runs: Sequence[Run], name: str) -> list[tuple[float, Estimate]]:
    """Return a figure at each sampled moment."""
    of = FIGURES[name].sampled
    assert of is not None, f"{name} is not sampled"
    moments = zip(*(run.samples for run in runs), strict=True)
    return [(samples[0].at, estimate([of(sample) for sample in samples])) for samples in moments]
