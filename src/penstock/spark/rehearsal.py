"""A small job that a new session runs before a real one, so that the first batch of that is no slow one.

Java loads and compiles what a query needs when it needs it first, and Spark starts its Python processes then:
seconds that a job would stand still for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from penstock.connect.memory import MemorySink, MemorySource
from penstock.engine.blueprint import make_blueprint
from penstock.engine.handle import Handle
from penstock.graph.job import Job
from penstock.graph.tasks import Count
from penstock.graph.vertex import SIDE_STREAMS
from penstock.spark.runtime import SparkRuntime


def warm_up(
    like: Job, *, master: str, conf: Mapping[str, object], folder: Path, cores: int, timeout: float
) -> bool:
    """Run a job of no consequence in the session of another one; say whether it came to its end in time."""
    job = Job("rehearsal", guarantee=like.guarantee, spark=like.spark)
    source = job.source("source", MemorySource(range(4 * cores), partitions=cores))
    count = job.task("count", Count())
    sink = job.sink("sink", MemorySink())
    source >> job.task("key", lambda record: (record.value, 1)) >> count >> sink
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=folder) as place:
        sides = {stream: MemorySink() for stream in SIDE_STREAMS}
        blueprint = make_blueprint(job, folder=Path(place), buckets=1, sides=sides)
        open_runtime = partial(SparkRuntime.open, job, master, conf)
        with Handle.begin(job, lambda _: blueprint, open_runtime) as handle:
            return handle.follow("drained", timeout)
