"""Changes that cannot be placed, in a cluster of real processes: the leader says so and comes to rest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from clusters import JOB, Cluster, running_cluster

from penstock.log import Log, log_folder
from support.engines import LOCAL
from support.waiting import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of two cores, and a job of two cores on each: both are full."""
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster(home, nodes=2, masters=1, servers=1, cores=2, idle=True, engine=LOCAL) as running:
        for name in ("left", "right"):
            _submit(running, name)
            eventually(f"{name} runs", partial(running.worker, name))
        yield running


def _submit(cluster: Cluster, name: str, *options: str) -> None:
    Log.create(log_folder(f"{name}-in", cluster.home), partitions=2, exist_ok=True)
    file = cluster.home / f"{name}.py"
    file.write_text(JOB.format(name=name))
    cluster.cli("submit", str(file), "--cores", "2", "--memory", "1g", *options)


def _revision(cluster: Cluster, name: str) -> int:
    return int(cluster.job(name)["status"]["revision"])


def _told(cluster: Cluster, name: str, words: str) -> dict[str, Any]:
    """Wait until it is said of a job what it cannot get."""
    found: dict[str, Any] = eventually(
        f"{name}: {words}",
        lambda: status if words in (status := cluster.job(name)["status"])["reason"] else None,
    )
    return found


def _runs(cluster: Cluster, name: str, revision: int, node: str = "") -> bool:
    worker = cluster.worker(name)
    return worker is not None and worker["revision"] >= revision and node in ("", worker["node"])


def _decide_for_a_while(cluster: Cluster) -> None:
    """Have the leader make several decisions: a new worker of another job is assigned, starts and runs."""
    revision = _revision(cluster, "right")
    cluster.cli("resubmit", "right")
    eventually("another worker of right runs", lambda: _runs(cluster, "right", revision + 1))


def test_executors_that_fit_nowhere(cluster: Cluster) -> None:
    _submit(cluster, "wide", "--executors", "1")
    assert _told(cluster, "wide", "no node can take it")["phase"] == "PENDING"
    before = _revision(cluster, "left")
    cluster.cli("scale", "left", "--executors", "1")
    _told(cluster, "left", "it now has executors, and none of its executors has a node")
    _decide_for_a_while(cluster)
    assert (_revision(cluster, "wide"), _revision(cluster, "left")) == (0, before)
    assert cluster.worker("left"), "it runs on as it is"
    cluster.cli("kill", "wide")
    cluster.cli("scale", "left", "--executors", "0")


def test_a_move_to_a_full_node_and_a_size_that_fits_nowhere(cluster: Cluster) -> None:
    node = cluster.job("left")["assignment"]["node"]
    [other] = {"n1", "n2"} - {node}
    before = _revision(cluster, "left")
    cluster.cli("migrate", "left", "--to", other)
    _told(cluster, "left", f"it was moved to {other}, and no node can take it")
    cluster.cli("rebalance")
    cluster.cli("scale", "left", "--cores", "3")
    _told(cluster, "left", "it now requests 3 cores")
    _decide_for_a_while(cluster)
    assert _revision(cluster, "left") == before
    assert _runs(cluster, "left", before, node), "it runs on where it is"
    assert not [alarm for alarm in cluster.get("/alarms") if alarm["kind"] == "assigned-too-often"]


def test_two_jobs_on_full_nodes_change_places(cluster: Cluster) -> None:
    left, right = (cluster.job(name)["assignment"]["node"] for name in ("left", "right"))
    before = {name: _revision(cluster, name) for name in ("left", "right")}
    cluster.cli("scale", "left", "--cores", "2")
    cluster.cli("migrate", "left", "--to", right)
    _told(cluster, "left", f"it was moved to {right}, and no node can take it")
    cluster.cli("migrate", "right", "--to", left)
    for name, node in (("left", right), ("right", left)):
        eventually(f"{name} runs on {node}", partial(_runs, cluster, name, 0, node))
        assert _revision(cluster, name) == before[name] + 1


def test_a_drain_ends_though_another_change_cannot_be_placed(cluster: Cluster) -> None:
    before = _revision(cluster, "left")
    cluster.cli("scale", "left", "--cores", "3")
    _told(cluster, "left", "it now requests 3 cores")
    cluster.cli("kill", "left", "--drain")
    eventually("left has ended", lambda: cluster.job("left")["status"]["phase"] == "ENDED")
    assert _revision(cluster, "left") == before
