"""A count by key and window of event time: our windows against Spark's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import throughput
from benchmarks.window_files import FILES_A_BATCH, SIZE, USERS, WATERMARK, expected, write_files

TARGETS = ("benchmarks.ours_window:run", "benchmarks.hand.windowed_count:run")
AT_LEAST = 0.95
_NOTE = (
    f"{FILES_A_BATCH} Parquet files a batch, {USERS} keys, windows of {SIZE} s, watermark {WATERMARK} s; both"
    " write the counts exactly once."
)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure a windowed count over files."""
    small = write_files(work / "small", 3 * FILES_A_BATCH, 100_000)
    folder = write_files(work / "files", sizes.sql_batches * FILES_A_BATCH, sizes.sql_file_records)
    with open_halves(TARGETS, work) as halves:
        for half in halves:
            warm_up(half, expected(small), folder=str(small))
        ours, other = alternate(sizes.rounds, *(partial(_measure, half, folder) for half in halves))
    row = compare(
        "windowed count over files",
        "Spark's own groupBy(window)",
        "records/s",
        Comparison(ours, other),
        at_least=AT_LEAST,
        note=_NOTE,
    )
    return [row]


def _measure(half: Half, folder: Path) -> float:
    return throughput(half(folder=str(folder), check=False))
