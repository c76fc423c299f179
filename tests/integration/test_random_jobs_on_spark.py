"""Random jobs on Spark do what a plain evaluation of the graph says they do."""

from __future__ import annotations

import pytest
from reference import compare, evaluate, random_job

import penstock as ps
from support.running import Engine

SEEDS = range(30)
AT_ONCE = {0, 5, 6, 13, 29}
"""Some of every kind; the others run in ``make test-full``."""


def test_random_jobs_are_of_every_kind() -> None:
    for seeds, least in ((SEEDS, 8), (sorted(AT_ONCE), 1)):
        jobs = [random_job(seed).job for seed in seeds]
        keyed = [job for job in jobs if any(edge.by is ps.SAME_KEY for edge in job.edges)]
        cyclic = [job for job in jobs if job.cycles()]
        assert len(keyed) >= least
        assert len(jobs) - len(keyed) >= least
        assert len(cyclic) >= least
        assert len(jobs) - len(cyclic) >= least
        assert len([job for job in keyed if job in cyclic]) >= least


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[] if seed in AT_ONCE else [pytest.mark.full]) for seed in SEEDS],
)
def test_on_spark(seed: int, spark: Engine) -> None:
    candidate = random_job(seed)
    assert evaluate(candidate, most=2_000) is not None, "more than a test wants"
    result = spark.feed(candidate.job, candidate.feed)
    compare(candidate, result, result.discarded)
