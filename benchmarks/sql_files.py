"""The input and the query of the SQL-only job, the same for both halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.parquet_jobs import file_batches
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
    """Return a query's batches."""
    return file_batches(query, folder, FILES_A_BATCH)
