"""A SQL-only job, written by hand: files, a query, files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.hand.session import open_session
from benchmarks.sql_files import FILES_A_BATCH, QUERY, SCHEMA, outcome_of, planned_batches
from benchmarks.timing import Measured


def run(folder: str, check: bool) -> Measured:
    """Run the job over a folder of Parquet files."""
    session = open_session()
    with tempfile.TemporaryDirectory(prefix="benchmark-hand-") as place:
        reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_A_BATCH)
        reader.parquet(folder).createOrReplaceTempView("input")
        writer = session.sql(QUERY).writeStream.option("checkpointLocation", f"{place}/checkpoint")
        query = writer.format("parquet").start(f"{place}/output")
        try:
            query.processAllAvailable()
            batches = planned_batches(query, Path(folder))
        finally:
            query.stop()
        found = outcome_of(pq.read_table(f"{place}/output")) if check else None
    return Measured(batches, found)
