"""Random jobs, on Spark and without it, do what a plain evaluation of the graph says they do."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from engine_support import LocalRun
from reference import RandomJob, evaluate, random_job

import penstock as ps

ON_SPARK, QUICK = 30, 8
"""How many run on Spark, and how many of them in ``make test``."""
WITHOUT_SPARK = 300


@cache
def _usable(count: int, first: int) -> list[RandomJob]:
    found: list[RandomJob] = []
    seed = first
    while len(found) < count:
        candidate = random_job(seed)
        seed += 1
        try:
            candidate.job.validate()
        except ps.GraphError:
            continue
        if evaluate(candidate, most=2_000) is not None:
            found.append(candidate)
    return found


def _compare(candidate: RandomJob, out: dict[str, list[ps.Record]], discarded: list[ps.Discarded]) -> None:
    expected = evaluate(candidate)
    assert expected is not None
    assert {name: Counter((r.key, r.value) for r in records) for name, records in out.items()} == expected[0]
    found = Counter((d.vertex, d.count, d.record.key, d.record.value) for d in discarded)
    assert found == expected[1]


def test_random_jobs_are_of_every_kind() -> None:
    jobs = [candidate.job for candidate in _usable(ON_SPARK, first=0)]
    keyed = [job for job in jobs if any(edge.by is ps.SAME_KEY for edge in job.edges)]
    cyclic = [job for job in jobs if job.cycles()]
    assert len(keyed) >= 10
    assert len(jobs) - len(keyed) >= 3
    assert len(cyclic) >= 8
    assert len(jobs) - len(cyclic) >= 8
    assert len([job for job in jobs if job in keyed and job in cyclic]) >= 5


@pytest.mark.parametrize(
    "number", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.full) for n in range(QUICK, ON_SPARK))]
)
def test_on_spark(number: int) -> None:
    candidate = _usable(ON_SPARK, first=0)[number]
    result = ps.testing.run(candidate.job, candidate.feed)
    _compare(candidate, dict(result), result.discarded)


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_same_jobs_without_spark(partitions: int) -> None:
    for candidate in _usable(ON_SPARK, first=0):
        result = ps.testing.run(candidate.job, candidate.feed, partitions=partitions, engine="local")
        _compare(candidate, dict(result), result.discarded)


def test_many_more_in_the_engine_alone(tmp_path: Path) -> None:
    for number, candidate in enumerate(_usable(WITHOUT_SPARK, first=10_000)):
        sources = list(candidate.feed.items())
        run = LocalRun(candidate.job, tmp_path / str(number), buckets=1 + number % 3)
        for name, items in sources:
            run.step(list(items), source=name)
        while run.feedback:
            run.step()
        out = {name: sink.records for name, sink in run.sinks.items()}
        _compare(candidate, out, [ps.Discarded.from_record(r) for r in run.discarded.records])
