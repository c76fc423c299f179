"""The Penstock half of the windowed count."""

from __future__ import annotations

import tempfile
from pathlib import Path

import penstock as ps
from benchmarks.hand.session import MASTER
from benchmarks.ours import CONF, Queries
from benchmarks.timing import Measured, Outcome
from benchmarks.window_files import FILES_A_BATCH, SIZE, WATERMARK, read_batches


def run(folder: str, check: bool) -> Measured:
    """Count events by user and window over a folder of Parquet files."""
    queries = Queries()
    with tempfile.TemporaryDirectory(prefix="benchmark-job-") as place:
        source = ps.FileSource(
            folder,
            "parquet",
            key="user",
            ts="time",
            columns=["user", "time"],
            partitions=FILES_A_BATCH,  # Each file of a batch has an order of its own.
            max_files_per_batch=FILES_A_BATCH,
            max_bytes_per_batch=None,
            index=f"{place}/index",
        )
        job = ps.Job("benchmark")
        count = job.task("count", ps.Count(), window=ps.TimeWindow(SIZE, watermark=WATERMARK))
        job.source("events", source) >> count >> job.sink("out", ps.LogSink("output", root=place))
        ps.run(job, master=MASTER, conf=CONF, folder=f"{place}/job", on_progress=queries)
        found = None
        if check:
            log = ps.Log.open(Path(place) / "logs" / "output")
            counts = [record.value for chunk in log.read(0, 0) for record in chunk]
            found = Outcome(len(counts), sum(counts))
    return Measured(read_batches(queries.first, Path(folder)), found)
