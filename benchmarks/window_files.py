"""The input of the windowed count, the same for both halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.parquet_jobs import file_batches
from benchmarks.timing import Batch, Outcome

FILES_A_BATCH = 4
USERS = 1_000
A_SECOND = 10_000
"""Events in a second of event time."""
SIZE, WATERMARK = 10, 2

_BEGIN = 1_700_000_000_000


def write_files(folder: Path, files: int, rows: int) -> Path:
    """Write events nearly in order of their times: every tenth is up to a second behind.

    The files of a batch are partitions of the same stretch of time.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        stretch, part = divmod(number, FILES_A_BATCH)
        first = stretch * rows * FILES_A_BATCH + part
        places = range(first, first + rows * FILES_A_BATCH, FILES_A_BATCH)
        times = [
            _BEGIN + place * 1000 // A_SECOND - (place * 37 % 1000 if place % 10 == 0 else 0)
            for place in places
        ]
        table = pa.table(
            {
                "user": [f"user-{place * 7919 % USERS}" for place in places],
                "time": pa.array(times, pa.timestamp("ms", "UTC")),
                "amount": [place % 97 / 10 for place in places],
            }
        )
        pq.write_table(table, folder / f"{number:04d}.parquet")
    return folder


def expected(folder: Path) -> Outcome:
    """Return how many counts there are in closed windows and what they sum up to, without Spark."""
    counts: dict[tuple[int, str], int] = {}
    newest = 0
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        millis = table["time"].cast(pa.int64()).to_pylist()
        newest = max(newest, *millis)
        for user, at in zip(table["user"].to_pylist(), millis, strict=True):
            window = at // (SIZE * 1000)
            counts[window, user] = counts.get((window, user), 0) + 1
    closed = [
        n for (window, _), n in counts.items() if (window + 1) * SIZE * 1000 <= newest - WATERMARK * 1000
    ]
    return Outcome(len(closed), sum(closed))


def read_batches(query: Any, folder: Path) -> tuple[Batch, ...]:
    """Return the batches of a query that had something to read."""
    return file_batches(query, folder, FILES_A_BATCH, lambda progress: progress.numInputRows > 0)
