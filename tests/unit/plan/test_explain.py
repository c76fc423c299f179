"""What ``job.explain()`` prints, against files that a person has read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.graph.samples import NoSink, NoSource, file_types, ranking, same, wordcount

from penstock.graph.job import Job
from penstock.graph.tasks import Count

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
