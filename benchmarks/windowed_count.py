"""A count by key and window of event time: our windows against Spark's own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parquet_jobs import compare_over_files
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from benchmarks.window_files import FILES_A_BATCH, SIZE, USERS, WATERMARK, expected, write_files

TARGETS = ("benchmarks.ours_window:run", "benchmarks.hand.windowed_count:run")
_NOTE = (
    f"{FILES_A_BATCH} Parquet files a batch, {USERS} keys, windows of {SIZE} s, watermark {WATERMARK} s; both"
    " write the counts exactly once."
)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure a windowed count over files."""
    small = write_files(work / "small", 3 * FILES_A_BATCH, 100_000)
    batches = 2 * sizes.sql_batches
    folder = write_files(work / "files", batches * FILES_A_BATCH, sizes.sql_file_records)
    return compare_over_files(
        "windowed count over files",
        "Spark's own groupBy(window)",
        _NOTE,
        TARGETS,
        (small, expected(small)),
        folder,
        sizes.rounds,
        work,
    )
