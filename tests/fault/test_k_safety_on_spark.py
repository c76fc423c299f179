"""Replicas of a job on Spark: killed, cut off, and back by themselves. Most schedules are without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from k_safety_lab import LinkedCluster, linked_cluster
from k_safety_schedules import Tried

from penstock.replicas.worker.replica_worker import MAX_BATCHES_BEHIND
from support.engines import SPARK
from support.waiting import eventually

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    with linked_cluster(tmp_path_factory.mktemp("cluster"), nodes=3, engine=SPARK) as running:
        yield running


@pytest.fixture(scope="module")
def two(cluster: LinkedCluster) -> Iterator[Tried]:
    with Tried(cluster, "tried", k=1) as job:
        yield job


def test_a_killed_replica_comes_back_with_a_copy_and_one_that_is_cut_off_elsewhere(two: Tried) -> None:
    cluster, replicas = two.cluster, two.replicas
    (killed, (node, folder)), (other, (cut, _)) = sorted(replicas.living().items())
    # So long that it has to copy: as long as its supervisor is paused, nobody starts it again there.
    supervisor = cluster.supervisors[node]
    supervisor.pause()
    replicas.kill(folder)
    ahead = replicas.batch(killed) + MAX_BATCHES_BEHIND
    eventually("the other one is far ahead", lambda: replicas.batch(other) > ahead + 1)
    supervisor.resume()
    # Before the other one moves: from a replica whose folder is just taken over there may be nothing to copy.
    eventually("the killed one has copied the other", lambda: replicas.copied(folder))
    cluster.cut(cut)
    eventually("the other one is wanted elsewhere", lambda: replicas.assigned(other) not in ("", cut))
    cluster.heal(cut)
    two.check()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_a_job_survives_what_happens_to_its_replicas(two: Tried, seed: int) -> None:
    two.survives(seed)


@pytest.mark.full
def test_one_of_three_replicas_goes_on_without_the_others(two: Tried) -> None:
    two.replicate(k=2)
    two.goes_on_without("kill worker", (0, 2))


def test_no_replica_differed(two: Tried) -> None:
    """The last test of this module."""
    two.end()
