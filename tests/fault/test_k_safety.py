"""Schedules of deaths, pauses and cuts over jobs with one and with two replicas more than they need.

After each schedule the job is k-safe again by itself, and its output has every record once. The cluster is
the same for all of them: what one has left behind, the next one meets. Its workers are without Spark, and so
back within seconds; ``test_k_safety_on_spark`` has a part of the same on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from k_safety_lab import LinkedCluster, linked_cluster
from k_safety_schedules import KINDS, Fault, Faults, Tried

from support.engines import LOCAL

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    with linked_cluster(tmp_path_factory.mktemp("cluster"), nodes=4, engine=LOCAL) as running:
        yield running


@pytest.fixture(scope="module")
def two(cluster: LinkedCluster) -> Iterator[Tried]:
    """A job with two replicas, as long as no test asks for three."""
    with Tried(cluster, "tried", k=1) as job:
        yield job


@pytest.fixture(scope="module")
def three(two: Tried) -> Tried:
    """The same job, with one replica more."""
    two.replicate(k=2)
    return two


@pytest.mark.parametrize("seed", range(3))
def test_a_job_survives_what_happens_to_its_replicas(two: Tried, seed: int) -> None:
    two.survives(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3, 50))
def test_a_job_survives_many_schedules(two: Tried, seed: int) -> None:
    two.survives(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_three_replicas_goes_on_without_the_others(three: Tried, kind: str) -> None:
    three.goes_on_without(kind, (0, 2))


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("kill worker", 0.0),
        ("pause", 2.0),
        pytest.param("cut", 7.0, marks=pytest.mark.full),
        pytest.param("kill node", 7.0, marks=pytest.mark.full),
    ],
)
def test_a_job_survives_what_happens_to_all_three_replicas_at_once(
    three: Tried, kind: str, seconds: float
) -> None:
    Faults(three.replicas, three.cluster).run([Fault(0.0, kind, (0, 1, 2), seconds)])
    three.check()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_a_job_with_three_replicas_survives_many_schedules(three: Tried, seed: int) -> None:
    three.survives(seed)


def test_no_replica_differed(three: Tried) -> None:
    """The last test of this module."""
    three.end()
