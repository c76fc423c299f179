"""(c) What a batch costs must follow from the keys that it touches, not from the keys that are held."""

from __future__ import annotations

from pathlib import Path

from benchmarks.arrow_files import expected_counts, write_batches
from benchmarks.events import growth_batches
from benchmarks.halves import Comparison, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import median_batch_seconds

AT_MOST = 1.5


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure the same batches over little state and over much."""
    small = write_batches(work / "small", growth_batches(2_000, 1_000, 100, 3))
    few, many = sizes.growth_held
    with open_halves(["benchmarks.ours:keyed_count"], work) as (ours,):
        warm_up(ours, expected_counts(small), folder=str(small))

        def median_touch(held: int) -> float:
            loads = -(-held // sizes.growth_load)
            measured = ours(folder=str(folders[held]), check=False)
            # The first batch after loading may still pay for the last load.
            return median_batch_seconds(measured, skip=loads + 1)

        folders = {
            held: write_batches(
                work / f"held-{held}",
                growth_batches(held, sizes.growth_load, sizes.growth_touched, sizes.growth_batches),
            )
            for held in sizes.growth_held
        }
        much, little = alternate(min(sizes.rounds, 3), lambda: median_touch(many), lambda: median_touch(few))
    return [
        compare(
            f"state cost, {many:,} keys held",
            f"ours with {few:,} keys held",
            "s a batch",
            Comparison(much, little),
            at_most=AT_MOST,
            note=f"Each batch touches {sizes.growth_touched:,} keys, spread over all that are held.",
        )
    ]
