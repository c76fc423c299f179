"""A running count by key in Python, written by hand with ``transformWithState``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.arrow_files import last_counts
from benchmarks.hand.arrow_source import read_stream
from benchmarks.hand.query import drain
from benchmarks.hand.session import open_session
from benchmarks.timing import Measured

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Writes what changed instead of whole files, as Spark's guide recommends for large state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class RunningCount(StatefulProcessor):
    """Counts the rows of each key; emits the new count once a batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Add the rows of one key."""
        held = self.count.get()
        total = (held[0] if held is not None else 0) + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(key=key[0], n=total)

    def close(self) -> None:
        """Nothing to close."""


def run(folder: str, batches: int | None, check: bool) -> Measured:
    """Run the job over the first micro-batches of a folder, or over all."""
    session = open_session(SETTINGS)
    counts = (
        read_stream(session, folder, batches)
        .select("key")
        .groupBy("key")
        .transformWithState(RunningCount(), "key string, n long", "update", "None")
    )
    return drain(counts, mode="update", check=check, digest=last_counts)
