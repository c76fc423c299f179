"""(f) What a batch costs under the weaker guarantees, small and large, against exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.arrow_files import expected_counts, write_batches
from benchmarks.events import event_batches, keyed_batches
from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import median_batch_seconds

TARGET = "benchmarks.ours:keyed_count"
STRONG = "exactly-once"
WEAKER = ("at-least-once", "at-most-once")
KEYS = 1_000


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure the median batch of a count by key, with a log as sink."""
    small = write_batches(
        work / "small", event_batches(sizes.small_batches, sizes.small_batch_records, users=50)
    )
    large = write_batches(work / "large", keyed_batches(sizes.batches, sizes.keyed_batch_records, KEYS))
    check = write_batches(work / "check", event_batches(5, sizes.small_batch_records))
    loads = (
        ("small batch", small, sizes.small_batches // 4, sizes.small_batch_records),
        ("large batch", large, 1, sizes.keyed_batch_records),
    )
    rows = []
    with open_halves([TARGET], work) as (ours,):
        for guarantee in (STRONG, *WEAKER):
            warm_up(ours, expected_counts(check), folder=str(check), guarantee=guarantee)
        for name, folder, skip, records in loads:
            runs = [_measure(ours, folder, guarantee, skip) for guarantee in (STRONG, *WEAKER)]
            strong, *weaker = alternate(min(sizes.rounds, 3), *runs)
            rows += [
                compare(
                    f"{name}, {guarantee}",
                    f"ours, {STRONG}",
                    "s a batch",
                    Comparison(figures, strong),
                    note=f"Median of batches of {records:,} records, counted by key into a log.",
                )
                for guarantee, figures in zip(WEAKER, weaker, strict=True)
            ]
    return rows


def _measure(half: Half, folder: Path, guarantee: str, skip: int) -> Callable[[], float]:
    return lambda: median_batch_seconds(half(folder=str(folder), guarantee=guarantee, check=False), skip)
