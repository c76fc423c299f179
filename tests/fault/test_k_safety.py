"""Random schedules of deaths, pauses and cuts over a job with one replica more than it needs.

After each schedule the job is k-safe again by itself, and its output has every record once. The cluster is
the same for all of them: what one has left behind, the next one meets.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Feeder
from k_safety_lab import LinkedCluster, Replicas, alarms_of, linked_cluster
from k_safety_schedules import NAME, survives

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    with linked_cluster(tmp_path_factory.mktemp("cluster"), nodes=3) as running:
        yield running


@pytest.fixture(scope="module")
def feeder(cluster: LinkedCluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, NAME, rate=200) as feeding:
        Replicas(cluster, NAME).submit("--k", "1")
        yield feeding


@pytest.mark.parametrize("seed", range(5))
def test_a_job_survives_what_happens_to_its_replicas(
    cluster: LinkedCluster, feeder: Feeder, seed: int
) -> None:
    survives(cluster, feeder, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5, 50))
def test_a_job_survives_many_schedules(cluster: LinkedCluster, feeder: Feeder, seed: int) -> None:
    survives(cluster, feeder, seed)


def test_no_replica_differed(cluster: LinkedCluster, feeder: Feeder) -> None:
    """The last test of this module."""
    feeder.stop()
    Replicas(cluster, NAME).check_exact(feeder)
    assert not alarms_of(cluster, "replicas-differ")
