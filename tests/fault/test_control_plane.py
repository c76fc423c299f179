"""The whole control plane in one thread: real masters, supervisors and workers' decisions, random faults.

Each seed is a life of a cluster of its own (:mod:`simulation`), on the store in memory and in virtual time.
A failing seed says its number and its last events. It happens again, with all of its events, by::

    PENSTOCK_SEED=123 pytest tests/fault/test_control_plane.py -k replay -s

``PENSTOCK_SEED=5000-7000`` runs a range and stops at the first that fails. Each seed is lived on large nodes
and on small ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from simulation.cluster import Cluster

SEEDS, MANY_SEEDS = 15, 1_015
"""A life takes from a quarter of a second to one. Each group of the short run has every kind of fault."""
SCARCE_SEEDS, MANY_SCARCE_SEEDS = 20, 1_020
"""Lives on small nodes, which take about twice as long."""
_TOGETHER, _SCARCE_TOGETHER, _MANY_TOGETHER = 15, 10, 500
_TOLD = 60


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Keep what masters and supervisors log out of the way: the world tells what happens."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _live(seed: int, told: int | None = _TOLD, *, scarce: bool = False) -> Cluster:
    cluster = Cluster(seed, remembered=told, scarce=scarce)
    try:
        cluster.run()
    except Exception as error:
        events = "\n".join(cluster.world.told)
        what = f"seed {seed}{' on small nodes' if scarce else ''}: {type(error).__name__}: {error}"
        pytest.fail(f"{what}\n{events}", pytrace=not str(error))
    return cluster


@pytest.mark.parametrize("first", range(0, SEEDS, _TOGETHER))
def test_a_cluster_survives_random_faults(first: int) -> None:
    lives = [_live(seed) for seed in range(first, first + _TOGETHER)]
    struck = {kind for life in lives for kind in life.faults.struck}
    assert struck == lives[0].faults.names, "no kind of fault was left out"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(SEEDS, MANY_SEEDS, _MANY_TOGETHER))
def test_many_clusters_survive_random_faults(first: int) -> None:
    for seed in range(first, first + _MANY_TOGETHER):
        _live(seed)


@pytest.mark.parametrize("first", range(0, SCARCE_SEEDS, _SCARCE_TOGETHER))
def test_a_cluster_of_small_nodes_comes_to_rest(first: int) -> None:
    """Jobs wait for room, are moved to full nodes, and get no executors: the leader must stop acting."""
    for seed in range(first, first + _SCARCE_TOGETHER):
        _live(seed, scarce=True)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(SCARCE_SEEDS, MANY_SCARCE_SEEDS, _MANY_TOGETHER))
def test_many_clusters_of_small_nodes_come_to_rest(first: int) -> None:
    for seed in range(first, first + _MANY_TOGETHER):
        _live(seed, scarce=True)


@pytest.mark.parametrize(
    ("seed", "scarce"),
    [(1144, False), (2705, False), (3899, False), (4203, False), (12034, False), (2399, True), (12303, True)],
)
def test_lives_that_ended_badly_once(seed: int, scarce: bool) -> None:
    """Found by trying many.

    A copy that is gone while the data is back, nodes without it, late reports, an alarm that was read before
    the status of its job, and a replica with room for its driver, but not for any executor.
    """
    _live(seed, scarce=scarce)


def test_a_seed_replays() -> None:
    one, other = _live(7), _live(7)
    assert list(one.world.told) == list(other.world.told)
    assert one.world.events == other.world.events
    assert one.clients.granted > 0


@pytest.mark.skipif("PENSTOCK_SEED" not in os.environ, reason="PENSTOCK_SEED names no seed to replay")
def test_replay() -> None:
    first, _, last = os.environ.get("PENSTOCK_SEED", "0").partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for scarce in (False, True):
            cluster = _live(seed, told=None if not last else _TOLD, scarce=scarce)
            if not last:
                print("\n".join(cluster.world.told))
