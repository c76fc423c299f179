"""The input and the query of the SQL-only job, the same for both halves."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.timing import Batch, Outcome

SCHEMA = "id long, user string, country string, amount double"
QUERY = (
    "SELECT id, upper(country) AS country, round(amount * 1.19, 2) AS amount,"
    " concat(user, '/', country) AS place FROM input WHERE amount > 20"
)
FILES_A_BATCH = 8

_COUNTRIES = ("de", "fr", "it", "us", "jp")


def write_files(folder: Path, files: int, rows: int) -> Path:
    """Write Parquet files whose names are in the order of their making."""
    folder.mkdir(parents=True)
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "user": [f"user-{i * 7919 % 100_000}" for i in ids],
                "country": [_COUNTRIES[i % 5] for i in ids],
                "amount": [i * 31 % 10_000 / 100 for i in ids],
            }
        )
        pq.write_table(table, folder / f"{number:04d}.parquet")
    return folder


def expected(folder: Path) -> Outcome:
    """Return what must come out, computed without Spark."""
    table = pq.read_table(folder)
    return _outcome(table.filter(pc.greater(table["amount"], 20.0)))


def outcome_of(table: Any) -> Outcome:
    """Return what came out, in a form that does not depend on order."""
    assert table.column_names == ["id", "country", "amount", "place"], table.column_names
    return _outcome(table)


def _outcome(table: Any) -> Outcome:
    return Outcome(table.num_rows, int(pc.sum(table["id"]).as_py()))


def planned_batches(query: Any, folder: Path) -> tuple[Batch, ...]:
    """Read a query's batches from its progress, and what they read from the files' own counts."""
    counts = [pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))]
    ran = [progress for progress in query.recentProgress if "addBatch" in progress.durationMs]
    batches = []
    for number, progress in enumerate(ran):
        start = datetime.fromisoformat(progress.timestamp).timestamp()
        rows = sum(counts[number * FILES_A_BATCH : (number + 1) * FILES_A_BATCH])
        batches.append(Batch(start, start + progress.durationMs["triggerExecution"] / 1000, rows))
    if len(batches) != -(-len(counts) // FILES_A_BATCH):
        raise ValueError(f"{len(batches)} batches ran over {len(counts)} files")
    return tuple(batches)
