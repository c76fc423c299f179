"""(d) The driver's memory over many batches: what it keeps of each batch must be nothing."""

from __future__ import annotations

from bisect import bisect
from itertools import combinations
from pathlib import Path
from statistics import median

from benchmarks.arrow_files import expected_map, write_batches
from benchmarks.events import event_batches, one_step
from benchmarks.halves import open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from benchmarks.timing import Measured

PROBE = "benchmarks.memory_probe:run"
OURS = "benchmarks.ours:small_batch"
HAND = "benchmarks.hand.small_batch:run"
FLAT = {"Python, resident": 5.0, "JVM, live objects": 5.0, "JVM, resident": 40.0}
"""MiB that a part may grow in a hundred batches and still count as flat. What is resident of the JVM is
mostly heap that it has reserved and not given back, so that its live objects tell more."""
PARTS = {
    "Python, resident": "python",
    "JVM, live objects": "heap",
    "JVM, resident": "jvm",
}


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Run many small batches and see whether memory grows with them, ours and hand-written in turn."""
    small = write_batches(work / "small", event_batches(5, sizes.small_batch_records))
    folder = write_batches(
        work / "batches", event_batches(sizes.memory_batches, sizes.small_batch_records, users=50)
    )
    measured = {}
    for target in (OURS, HAND):
        with open_halves([PROBE], work) as (half,):
            warm_up(half, expected_map(small, one_step), target=target, folder=str(small), keyed=False)
            measured[target] = half(target=target, folder=str(folder), keyed=False, check=False)
    return [
        _row(name, growth(measured[OURS], part), growth(measured[HAND], part), sizes)
        for name, part in PARTS.items()
    ]


def _row(name: str, ours: float, other: float, sizes: Sizes) -> Row:
    return Row(
        benchmark=f"driver memory, {name}",
        other_name="foreachBatch with mapInArrow",
        unit="MiB in 100 batches",
        ours=ours,
        other=other,
        ratio=None,
        target=f"at most {FLAT[name]:g} MiB",
        met=ours <= FLAT[name],
        note=f"Growth over the last three quarters of {sizes.memory_batches} batches, after collections.",
    )


def growth(measured: Measured, part: str) -> float:
    """Return by how many MiB a part of the driver's memory grows in a hundred batches."""
    ends = [batch.end for batch in measured.batches]
    points = [(bisect(ends, sample.time), getattr(sample, part)) for sample in measured.memory]
    settled = [(done, memory) for done, memory in points if done >= len(ends) // 4]
    return 100 * slope(settled)


def slope(points: list[tuple[int, float]]) -> float:
    """Return the median of the slopes between all pairs of points, which no single jump can bend.

    >>> slope([(0, 1), (1, 2), (2, 3), (3, 4), (4, 40)])
    1.0
    """
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 > x1]
    if not slopes:
        raise ValueError(f"{len(points)} samples of memory are too few to see growth")
    return float(median(slopes))
