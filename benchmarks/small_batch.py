"""(e) What a batch costs when there is next to nothing in it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.arrow_files import expected_counts, expected_map, write_batches
from benchmarks.events import event_batches, one_step
from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import median_batch_seconds

TARGETS = ("benchmarks.ours:small_batch", "benchmarks.hand.small_batch:run")
AT_MOST = 1.2


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure without keys against ``mapInArrow``, and with keys against Spark's own count."""
    small = write_batches(work / "small", event_batches(5, sizes.small_batch_records))
    folder = write_batches(
        work / "batches", event_batches(sizes.small_batches, sizes.small_batch_records, users=50)
    )
    skip = sizes.small_batches // 4

    def measure(half: Half, keyed: bool) -> float:
        return median_batch_seconds(half(folder=str(folder), keyed=keyed, check=False), skip)

    rows = []
    with open_halves(TARGETS, work) as (ours, hand):
        for keyed in (False, True):
            expected = expected_counts(small) if keyed else expected_map(small, one_step)
            for half in (ours, hand):
                warm_up(half, expected, folder=str(small), keyed=keyed)
            mine, theirs = alternate(
                min(sizes.rounds, 3),
                lambda keyed=keyed: measure(ours, keyed),  # type: ignore[misc]
                lambda keyed=keyed: measure(hand, keyed),  # type: ignore[misc]
            )
            rows.append(
                compare(
                    "small batch, " + ("count by key" if keyed else "no keys"),
                    "foreachBatch with groupBy.count" if keyed else "foreachBatch with mapInArrow",
                    "s a batch",
                    Comparison(mine, theirs),
                    at_most=None if keyed else AT_MOST,
                    note=(
                        f"Median of {sizes.small_batches - skip} batches of "
                        f"{sizes.small_batch_records} records, after {skip} others."
                        + (" Spark's own count runs no Python." if keyed else "")
                    ),
                )
            )
    return rows
