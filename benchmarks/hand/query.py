"""Runs a streaming data frame until its input is used up, and reads the times from Spark's progress."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.arrow_files import outcome_of
from benchmarks.timing import Batch, Measured, Outcome


def drain(
    frame: DataFrame,
    *,
    check: bool,
    store: bool = False,
    mode: str = "append",
    digest: Callable[[Iterable[tuple[Any, ...]]], Outcome] = outcome_of,
) -> Measured:
    """Run a query to the end of its input.

    A run that is measured throws its output away in the JVM (``noop``) or stores it with Spark's own
    exactly-once file sink, as Parquet. A run that is checked collects its output instead.
    """
    collected: list[tuple[Any, ...]] = []

    def take(batch: DataFrame, _: int) -> None:
        if check:
            collected.extend(tuple(row) for row in batch.collect())
        else:
            batch.write.format("noop").mode("overwrite").save()

    with tempfile.TemporaryDirectory(prefix="benchmark-hand-") as place:
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", f"{place}/checkpoint")
        if store and not check:
            query = writer.format("parquet").start(f"{place}/output")
        else:
            query = writer.foreachBatch(take).start()
        try:
            query.processAllAvailable()
            batches = batches_of(query)
        finally:
            query.stop()
    return Measured(batches, digest(collected) if check else None)


def batches_of(query: StreamingQuery) -> tuple[Batch, ...]:
    """Read a query's batches from its progress, which has them to the millisecond."""
    batches = []
    for progress in query.recentProgress:
        if progress.numInputRows > 0:
            start = datetime.fromisoformat(progress.timestamp).timestamp()
            seconds = progress.durationMs["triggerExecution"] / 1000
            batches.append(Batch(start, start + seconds, progress.numInputRows))
    return tuple(batches)
