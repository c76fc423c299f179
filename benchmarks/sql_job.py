"""A job that is nothing but SQL: our vertex against the same query in a streaming query written by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parquet_jobs import compare_over_files
from benchmarks.sizes import Sizes
from benchmarks.sql_files import FILES_A_BATCH, expected, write_files
from benchmarks.table import Row

TARGETS = ("benchmarks.ours_sql:run", "benchmarks.hand.sql_job:run")
_NOTE = (
    f"{FILES_A_BATCH} Parquet files a batch, filtered and projected; both write Parquet files exactly once."
)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure a query between files."""
    small = write_files(work / "small", 3 * FILES_A_BATCH, 100)
    folder = write_files(work / "files", sizes.sql_batches * FILES_A_BATCH, sizes.sql_file_records)
    return compare_over_files(
        "SQL only, files to files",
        "the same query by hand",
        _NOTE,
        TARGETS,
        (small, expected(small)),
        folder,
        sizes.rounds,
        work,
    )
