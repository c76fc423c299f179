"""Small batches, where the cost of a batch itself is all there is."""

from __future__ import annotations

from benchmarks.arrow_files import last_counts
from benchmarks.hand.arrow_source import read_stream
from benchmarks.hand.per_record import one_step
from benchmarks.hand.query import drain
from benchmarks.hand.session import open_session
from benchmarks.timing import Measured


def run(folder: str, keyed: bool, check: bool) -> Measured:
    """Run a ``mapInArrow`` job, or Spark's own count by key, over a folder of small batches."""
    frame = read_stream(open_session(), folder)
    if keyed:
        counts = frame.groupBy("key").count()
        return drain(counts, mode="update", check=check, digest=last_counts)
    return drain(frame.mapInArrow(one_step, "key string, value string"), check=check)
