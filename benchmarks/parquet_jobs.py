"""What benchmarks over a folder of Parquet files have in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.table import Row, compare
from benchmarks.timing import Batch, Outcome, throughput


def compare_over_files(
    title: str,
    other: str,
    note: str,
    targets: tuple[str, str],
    small: tuple[Path, Outcome],
    folder: Path,
    rounds: int,
    work: Path,
) -> list[Row]:
    """Warm both halves up with a small folder, which is checked, and let them take turns over another."""
    with open_halves(targets, work) as halves:
        for half in halves:
            warm_up(half, small[1], folder=str(small[0]))
        ours, theirs = alternate(rounds, *(partial(_measure, half, folder) for half in halves))
    row = compare(title, other, "records/s", Comparison(ours, theirs), at_least=0.95, note=note)
    return [row]


def _measure(half: Half, folder: Path) -> float:
    return throughput(half(folder=str(folder), check=False))


def file_batches(
    query: Any, folder: Path, files_a_batch: int, counts: Callable[[Any], bool] = lambda _: True
) -> tuple[Batch, ...]:
    """Read a query's batches from its progress, and how many records they had from the files' own counts."""
    rows = [pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))]
    ran = [progress for progress in query.recentProgress if "addBatch" in progress.durationMs]
    batches = []
    for number, progress in enumerate(filter(counts, ran)):
        start = datetime.fromisoformat(progress.timestamp).timestamp()
        records = sum(rows[number * files_a_batch : (number + 1) * files_a_batch])
        batches.append(Batch(start, start + progress.durationMs["triggerExecution"] / 1000, records))
    if len(batches) != -(-len(rows) // files_a_batch):
        raise ValueError(f"{len(batches)} batches ran over {len(rows)} files")
    return tuple(batches)
