"""A count by user and window, as Spark itself does it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.hand.session import open_session
from benchmarks.timing import Measured, Outcome
from benchmarks.window_files import FILES_A_BATCH, SIZE, WATERMARK, read_batches


def run(folder: str, check: bool) -> Measured:
    """Count events by user and window over a folder of Parquet files."""
    from pyspark.sql import functions

    # Spark closes windows in the batch after; where counts are checked, a batch without data follows.
    session = open_session()
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(check).lower())
    with tempfile.TemporaryDirectory(prefix="benchmark-hand-") as place:
        events = (
            session.readStream.schema("user string, time timestamp")
            .option("maxFilesPerTrigger", FILES_A_BATCH)
            .parquet(folder)
            .withWatermark("time", f"{WATERMARK} seconds")
        )
        window = functions.window("time", f"{SIZE} seconds")
        counts = events.groupBy(window, "user").count().select("window.start", "user", "count")
        query = (
            counts.writeStream.option("checkpointLocation", f"{place}/checkpoint")
            .format("parquet")
            .outputMode("append")
            .start(f"{place}/output")
        )
        try:
            query.processAllAvailable()
            batches = read_batches(query, Path(folder))
        finally:
            query.stop()
        found = None
        if check:
            column = pq.read_table(f"{place}/output")["count"].to_pylist()
            found = Outcome(len(column), sum(column))
    return Measured(batches, found)
