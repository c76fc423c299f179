"""A job that is nothing but SQL: our vertex against the same query in a streaming query written by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.sql_files import FILES_A_BATCH, expected, write_files
from benchmarks.table import Row, compare
from benchmarks.timing import throughput

TARGETS = ("benchmarks.ours_sql:run", "benchmarks.hand.sql_job:run")
AT_LEAST = 0.95
_NOTE = (
    f"{FILES_A_BATCH} Parquet files a batch, filtered and projected; both write Parquet files exactly once."
)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure a query between files."""
    small = write_files(work / "small", 3 * FILES_A_BATCH, 100)
    folder = write_files(work / "files", sizes.sql_batches * FILES_A_BATCH, sizes.sql_file_records)
    with open_halves(TARGETS, work) as halves:
        for half in halves:
            warm_up(half, expected(small), folder=str(small))
        ours, other = alternate(sizes.rounds, *(partial(_measure, half, folder) for half in halves))
    row = compare(
        "SQL only, files to files",
        "the same query by hand",
        "records/s",
        Comparison(ours, other),
        at_least=AT_LEAST,
        note=_NOTE,
    )
    return [row]


def _measure(half: Half, folder: Path) -> float:
    return throughput(half(folder=str(folder), check=False))
