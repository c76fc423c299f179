"""Where jobs run in a cluster of real processes: by strategies, the users' own among them, and explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import JOB, Cluster, running_cluster

from penstock.log import Log, log_folder
from penstock.record import Record
from support.engines import EITHER
from support.waiting import eventually

STRATEGIES = '''
from penstock.schedule.placement_model import Matrix


class OnTheLast:
    """Puts everything on the last node."""

    def place(self, snapshot, demands):
        stay = {task.id: task.current for task in snapshot.tasks if task.current}
        return Matrix({**stay, **{task.id: snapshot.nodes[-1].name for task in demands}})


class OnTheMoon:
    def place(self, snapshot, demands):
        return Matrix({task.id: "moon" for task in demands})


class ForEver:
    def place(self, snapshot, demands):
        while True:
            pass
'''


@pytest.fixture(scope="module", params=EITHER)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster(
        home, nodes=3, masters=1, servers=1, cores=4, idle=True, engine=request.param
    ) as running:
        yield running


def _submit(cluster: Cluster, name: str, *options: str) -> dict[str, Any]:
    """Submit a job with strategies in its own code; return where it is, once that is decided."""
    Log.create(log_folder(f"{name}-in", cluster.home), partitions=2, exist_ok=True)
    folder = cluster.home / "code" / name
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOB.format(name=name))
    (folder / "mine.py").write_text(STRATEGIES)
    cluster.cli("submit", str(folder), "--entry", "job.py", "--memory", "1g", *options)
    found: dict[str, Any] = eventually(f"{name} is assigned", lambda: cluster.job(name)["assignment"])
    return found


def _explained(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.cli("explain", name, "--placement", "-o", "json"))
    return found


def test_nodes_that_are_to_be_idle_say_so(cluster: Cluster) -> None:
    """Else what follows would depend on what this machine has to do."""
    reports = eventually(
        "a report", lambda: [found for node in cluster.get("/nodes") if (found := node["report"])]
    )
    assert {report["cpu"] for report in reports} == {0.0}
    assert {report["memory_used"] for report in reports} == {0}


def test_a_strategy_of_the_users_own_places_its_job(cluster: Cluster) -> None:
    assigned = _submit(cluster, "own", "--strategy", "mine:OnTheLast")
    assert (assigned["node"], assigned["strategy"], assigned["refused"]) == ("n3", "mine:OnTheLast", "")
    found = _explained(cluster, "own")
    assert found["matrix"] == {"own/driver": "n3"}
    assert set(found["rejected"]["own/driver"]) == {"n1", "n2"}
    assert set(found["cost"]) >= {"imbalance", "cross_node", "cross_rack", "moves", "fit", "total"}
    picture = cluster.cli("explain", "own", "--placement")
    for words in ("own/driver", "imbalance", "why not on other nodes", "it could take the task, but"):
        assert words in picture


@pytest.mark.parametrize(
    ("name", "strategy", "reason"),
    [
        ("wrong", "mine:OnTheMoon", "there is no node 'moon'"),
        ("endless", "mine:ForEver", "did not answer within"),
        pytest.param("missing", "mine:NotThere", "NotThere", marks=pytest.mark.full),
    ],
)
def test_a_strategy_that_is_of_no_use_is_refused_and_the_job_runs(
    cluster: Cluster, name: str, strategy: str, reason: str
) -> None:
    assigned = _submit(cluster, name, "--strategy", strategy)
    assert assigned["strategy"] == "balanced"
    assert reason in assigned["refused"]
    assert eventually("the master was not hurt", cluster.leader)
    assert reason in cluster.cli("explain", name, "--placement")
    cluster.cli("kill", name)


def test_a_strategy_that_there_is_not_is_refused_at_once(cluster: Cluster) -> None:
    folder = cluster.home / "code" / "own"
    told = cluster.cli("submit", str(folder), "--entry", "job.py", "--strategy", "fastest", expect=1)
    assert "there is no strategy 'fastest'" in told


def test_a_job_that_no_node_can_take_says_why(cluster: Cluster) -> None:
    Log.create(log_folder("large-in", cluster.home), partitions=2)
    file = Path(cluster.home / "large.py")
    file.write_text(JOB.format(name="large"))
    cluster.cli("submit", str(file), "--cores", "5", "--memory", "1g")
    eventually("it waits", lambda: "5 cores asked for" in cluster.job("large")["reason"])
    found = _explained(cluster, "large")
    assert found["matrix"] == {}
    assert "5 cores asked for" in found["unplaced"]["large/driver"]
    cluster.cli("kill", "large")


def test_what_a_lost_node_had_goes_elsewhere_by_the_same_strategy(cluster: Cluster) -> None:
    Log.open(log_folder("own-in", cluster.home)).append([Record(None, number) for number in range(100)])
    eventually("it runs", lambda: cluster.worker("own"))
    cluster.kill_node("n3")
    moved = eventually(
        "it is elsewhere", lambda: (found := cluster.job("own")["assignment"])["revision"] > 1 and found
    )
    assert (moved["node"], moved["strategy"]) == ("n2", "mine:OnTheLast")
    eventually("it runs again", lambda: cluster.worker("own"))
    cluster.supervisors["n3"].start()
    eventually("the node is back", lambda: len(cluster.get("/nodes")) == 3)


def test_rebalancing_moves_drivers_until_loads_are_alike(cluster: Cluster) -> None:
    """Jobs of the strategy that packs share a node with another; rebalancing takes them apart."""
    others = [job["name"] for job in cluster.get("/jobs") if job["name"] != "own"]
    for name in others:
        eventually(f"{name} has ended", lambda name=name: cluster.job(name)["phase"] == "ENDED")  # type: ignore[misc]
    there = cluster.job("own")["assignment"]["node"]
    jobs = ("first", "own", "second")
    for name in ("first", "second"):
        assert _submit(cluster, name, "--strategy", "packed")["node"] == there
    for name in jobs:
        eventually(f"{name} runs", lambda name=name: cluster.worker(name))  # type: ignore[misc]
    assert len(json.loads(cluster.cli("rebalance", "--dry-run", "-o", "json"))["moves"]) == 2
    cluster.cli("rebalance")
    eventually(
        "each has a node of its own",
        lambda: len({cluster.job(name)["assignment"]["node"] for name in jobs}) == 3,
    )
    assert json.loads(cluster.cli("rebalance", "--dry-run", "-o", "json"))["moves"] == []
