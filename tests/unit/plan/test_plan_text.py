"""What ``job.explain()`` prints, against files that a person has read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.graph.samples import NoSink, NoSource, file_types, ranking, same, wordcount

from penstock.graph.aggregations import Count
from penstock.graph.job import Job
from penstock.graph.tasks import Inputs, Outputs, Task
from penstock.graph.windows import CountWindow, TimeWindow

GOLDEN = Path(__file__).parent / "golden"


def both_sides() -> Job:
    """A vertex that runs before the shuffle and after it."""
    job = Job("both-sides", max_iterations=1)
    numbers, count, again = (
        job.source("numbers", NoSource()),
        job.task("count", Count()),
        job.task("again", same),
    )
    numbers >> again >> count >> again >> job.sink("results", NoSink())
    return job


@pytest.mark.parametrize("build", [wordcount, file_types, ranking, both_sides])
def test_explain(build: Callable[[], Job]) -> None:
    assert build().explain() == (GOLDEN / f"{build.__name__}.txt").read_text(encoding="utf-8")


def test_what_a_vertex_waits_for_is_said() -> None:
    class Pair(Task):
        inputs, sync = ("left", "right"), True

        def execute(self, inputs: Inputs, outputs: Outputs) -> None: ...

    job = Job("waiting")
    source, pair = job.source("s", NoSource(), window=CountWindow(3)), job.task("pair", Pair())
    count = job.task("count", Count(), window=TimeWindow("1m", slide="10s", watermark="5s"))
    source >> count >> [pair["left"], pair["right"]]
    pair >> job.sink("out", NoSink())
    said = job.explain()
    assert "[windows of 3 records every 3]" in said
    assert "[windows of 60 s every 10 s, event time, watermark 5 s]" in said
    assert "[waits for a record at each of left, right]" in said
    assert "s -> its windows" in said
