"""(f) What a batch costs under the weaker guarantees, small and large, against exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.arrow_files import expected_counts, write_batches
from benchmarks.events import event_batches, keyed_batches
from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import median_batch_seconds

TARGET = "benchmarks.ours:keyed_count"
KEYS = 1_000


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure what the weaker guarantees save."""
    return compare_settings(sizes, work, "guarantee", "exactly-once", ("at-least-once", "at-most-once"))


def compare_settings(sizes: Sizes, work: Path, setting: str, usual: str, others: Sequence[str]) -> list[Row]:
    """Measure the median batch of a count by key, with a log as sink, by the value of a job's setting."""
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
        for value in (usual, *others):
            warm_up(ours, expected_counts(check), folder=str(check), **{setting: value})
        for name, folder, skip, records in loads:
            runs = [_measure(ours, folder, {setting: value}, skip) for value in (usual, *others)]
            base, *figures = alternate(min(sizes.rounds, 3), *runs)
            rows += [
                compare(
                    f"{name}, {_shown(setting, value)}",
                    f"ours, {_shown(setting, usual)}",
                    "s a batch",
                    Comparison(measured, base),
                    note=f"Median of batches of {records:,} records, counted by key into a log.",
                )
                for value, measured in zip(others, figures, strict=True)
            ]
    return rows


def _shown(setting: str, value: str) -> str:
    return value if setting == "guarantee" else f"{setting} {value}"


def _measure(half: Half, folder: Path, settings: dict[str, str], skip: int) -> Callable[[], float]:
    return lambda: median_batch_seconds(half(folder=str(folder), check=False, **settings), skip)
