"""The Penstock half of the SQL-only job."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import penstock as ps
from benchmarks.hand.session import MASTER
from benchmarks.ours import CONF, Queries
from benchmarks.sql_files import FILES_A_BATCH, QUERY, SCHEMA, outcome_of, planned_batches
from benchmarks.timing import Measured


def run(folder: str, check: bool) -> Measured:
    """Run the job over a folder of Parquet files."""
    queries = Queries()
    with tempfile.TemporaryDirectory(prefix="benchmark-job-") as place:
        source = ps.FileSource(
            folder,
            "parquet",
            schema=SCHEMA,
            max_files_per_batch=FILES_A_BATCH,
            max_bytes_per_batch=None,
            index=f"{place}/index",
        )
        job = ps.Job("benchmark")
        rows = job.source("rows", source)
        # What Spark's own file sink uses if it is not told otherwise.
        out = job.sink("out", ps.FileSink(f"{place}/output", compression="snappy"))
        rows >> job.task("query", ps.Sql(QUERY)) >> out
        ps.run(job, master=MASTER, conf=CONF, folder=f"{place}/job", on_progress=queries)
        files = sorted(Path(place, "output").glob("*.parquet"))
        found = outcome_of(pq.read_table(files)) if check else None
    return Measured(planned_batches(queries.first, Path(folder)), found)
