"""Sources, sinks, tasks and jobs that the tests of the graph and of the planner build on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.graph.aggregations import Count
from penstock.graph.connector_api import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.graph.edge import BROADCAST, SAME_KEY
from penstock.graph.job import Job
from penstock.graph.tasks import Inputs, Outputs, Task
from penstock.record import Record


class NoSource(Source):
    """A source without records; the graph never reads one."""

    def __init__(self, topic: str = "none") -> None:
        self.topic = topic

    def begin(self) -> Position:
        return {}

    def latest(self, after: Position) -> Position:
        return after

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return []

    def read(self, split: Split) -> Iterator[list[Record]]:
        yield from ()

    def describe(self) -> dict[str, Any]:
        return {"topic": self.topic}


class NoSink(Sink):
    """A sink that is never written to."""

    def writer(self, context: WriteContext) -> SinkWriter:
        raise NotImplementedError

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        raise NotImplementedError


class Quiet(Task):
    """A task that emits nothing."""

    def execute(self, inputs: Inputs, outputs: Outputs) -> None:
        return None


class Classify(Quiet):
    outputs = ("text", "image", "video", "unknown")


class Join(Quiet):
    inputs = ("left", "right")
    outputs = ("matched", "rest")


def same(record: Record) -> Record:
    return record


def line_job(name: str = "line", **settings: Any) -> Job:
    """source >> task >> sink."""
    job = Job(name, **settings)
    job.source("source", NoSource()) >> job.task("task", same) >> job.sink("sink", NoSink())
    return job


def wordcount() -> Job:
    job = Job("wordcount")
    lines = job.source("lines", NoSource("lines"))
    split = job.task("split", same)
    count = job.task("count", Count())
    counts = job.sink("counts", NoSink())
    lines >> split >> count >> counts
    return job


def file_types(max_iterations: int | None = 3) -> Job:
    """The job of seed 000, Fig. 9: unknown files are unpacked and classified again."""
    job = Job("files", max_iterations=max_iterations)
    files = job.source("files", NoSource("files"))
    v0 = job.task("V0", Classify)
    v1, v2, v3, v4, v5, v6 = (job.task(f"V{number}", same) for number in range(1, 7))
    done = job.sink("done", NoSink())
    files >> v0
    for port, vertex in (("text", v1), ("image", v2), ("video", v3)):
        v0[port] >> vertex >> done
    v0["unknown"] >> v4 >> [v5, v6] >> v0
    return job


def ranking() -> Job:
    """Two keyed stages, a loop through both of them, a loop in memory and two sinks."""
    job = Job("ranking", max_iterations=5)
    left, right = job.source("left", NoSource("left")), job.source("right", NoSource("right"))
    join = job.task("join", Join)
    total = job.task("total", Count())
    rank = job.task("rank", Count(), max_iterations=1)
    settle = job.task("settle", same)
    results, rest = job.sink("results", NoSink()), job.sink("rest", NoSink())
    left >> join["left"]
    right >> join["right"]
    join["matched"] >> total >> rank >> settle >> results
    job.connect(join["rest"], rest, by=SAME_KEY)
    settle >> settle
    rank >> total
    job.connect(rank, copy := job.task("copy", same, parallelism=3), by=BROADCAST)
    copy >> results
    return job
