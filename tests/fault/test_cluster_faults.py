"""A cluster of three ZooKeeper servers, two masters and three nodes, of which one thing after another dies.

One exactly-once job with continuous input runs all the time. After each death: a leader within 10 seconds,
another worker of the job started within 20 seconds, no twin workers. At the end: every
record once, none missing, and a numbering by key without gap or double.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from clusters import (
    JOB,
    MOVE_SECONDS,
    Cluster,
    Feeder,
    check_exact,
    outputs,
    running_cluster,
    wait_for_outputs,
)

from support.engines import EITHER, LOCAL, SPARK
from support.waiting import DEADLINE, always, eventually, promised

LEADER_SECONDS = 10.0
KILLS = 2
AWAY_SECONDS = {LOCAL: 8.0, SPARK: 30.0}
"""How long there is no ZooKeeper: longer than a session lasts, 6 seconds."""
SETTLED_SECONDS = {LOCAL: 8.0, SPARK: MOVE_SECONDS}
"""How long is watched then whether anything is restarted, which nodes whose sessions had ended would be."""

SLOW = JOB.replace("seen = state or 0", "seen = state or 0; time.sleep(0.01)").replace(
    "import pen", "import time\nimport pen", 1
)
"""The same job with batches that take so long that a worker is killed within one."""


@pytest.fixture(scope="module", params=EITHER)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), engine=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, "faults") as feeding:
        cluster.submit("faults", "--cores", "1")
        yield feeding


@pytest.fixture(autouse=True)
def _well_afterwards(cluster: Cluster, feeder: Feeder) -> Iterator[None]:
    yield
    eventually("a leader", cluster.leader)
    eventually("a running worker", lambda: cluster.worker("faults"))
    if feeder.feeding:
        eventually("a batch after the fault", cluster.batches_advance("faults"))
    assert len(cluster.drivers("faults")) == 1, "no twins"


def _new_leader(cluster: Cluster, before: str) -> None:
    """Wait for another leader. Masters are asked one by one: a follower would ask the one that is away."""

    def leads() -> bool:
        if not any(cluster.leads(master) for master in cluster.masters if master.name != before):
            return False
        led = cluster.leader()
        return led is not None and led.name != before

    promised(LEADER_SECONDS, "another leader", leads, cluster.home)


def _epoch(cluster: Cluster) -> int:
    found = eventually("an answer", lambda: cluster.get("/cluster"))
    return int(found["epoch"])


def test_the_leader_is_killed(cluster: Cluster) -> None:
    leader = eventually("a leader", cluster.leader)
    worker = cluster.drivers("faults")[0].pid
    epoch = _epoch(cluster)
    leader.kill()
    _new_leader(cluster, leader.name)
    assert _epoch(cluster) > epoch
    leader.start()
    assert [driver.pid for driver in cluster.drivers("faults")] == [worker], "the job was left alone"


def test_a_supervisor_is_killed_and_its_successor_adopts_the_worker(cluster: Cluster) -> None:
    worker = eventually("a worker", lambda: cluster.worker("faults"))
    [driver] = cluster.drivers("faults")
    supervisor = cluster.supervisors[worker["node"]]
    supervisor.kill()
    eventually(
        "the node is missed", lambda: worker["node"] not in {node["name"] for node in cluster.get("/nodes")}
    )
    eventually(
        "an alarm that nobody watches the worker",
        lambda: any(alarm["kind"] == "unsupervised" for alarm in cluster.get("/alarms")),
    )
    eventually("the worker goes on", cluster.batches_advance("faults"))
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid], "no twin elsewhere"
    supervisor.start()
    eventually("the node is back", lambda: worker["node"] in {node["name"] for node in cluster.get("/nodes")})
    eventually(
        "the worker is adopted",
        lambda: any(
            figures["pid"] == driver.pid
            for node in cluster.get("/nodes")
            for figures in (node["report"] or {}).get("workers", ())
        ),
    )
    eventually("the alarm is over", lambda: not cluster.get("/alarms"))
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid]


def test_the_python_of_a_worker_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    driver.kill()
    cluster.wait_for_another("faults", driver)


def test_every_process_of_a_node_is_killed(cluster: Cluster) -> None:
    worker = eventually("a worker", lambda: cluster.worker("faults"))
    cluster.kill_node(worker["node"])
    promised(
        MOVE_SECONDS,
        "a worker elsewhere is started",
        lambda: [one for one in cluster.drivers("faults") if one.is_running()],
        cluster.home,
    )
    eventually(
        "it runs elsewhere",
        lambda: (found := cluster.worker("faults")) and found["node"] != worker["node"],
    )
    cluster.supervisors[worker["node"]].start()
    eventually("the node is back", lambda: worker["node"] in {node["name"] for node in cluster.get("/nodes")})


def test_one_zookeeper_server_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    os.kill(cluster.zookeeper.pids()[1], signal.SIGKILL)
    eventually("the server is gone", lambda: 1 not in cluster.zookeeper.pids())
    eventually("the job goes on", cluster.batches_advance("faults"))
    promised(LEADER_SECONDS, "a leader", cluster.leader, cluster.home)
    cluster.zookeeper.start()
    cluster.zookeeper.wait_ready(timeout=DEADLINE)
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid]


def test_a_leader_that_was_paused_past_its_session_can_write_no_more(cluster: Cluster) -> None:
    leader = eventually("a leader", cluster.leader)
    epoch = _epoch(cluster)
    leader.pause()
    try:
        _new_leader(cluster, leader.name)
        changed = _epoch(cluster)
        assert changed > epoch
    finally:
        leader.resume()
    eventually(
        "it knows that it leads no more", lambda: "penstock_master_leader 0" in cluster.metrics(leader)
    )
    current = eventually("a leader", cluster.leader)
    assert current.name != leader.name
    assert _epoch(cluster) == changed


def test_all_zookeeper_servers_are_away_for_longer_than_a_session(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    epoch = _epoch(cluster)
    cluster.zookeeper.stop()
    back = time.monotonic() + AWAY_SECONDS[cluster.engine]
    while time.monotonic() < back:
        eventually("the job keeps producing", cluster.batches_advance("faults"))
    cluster.zookeeper.start()
    eventually("the cluster is back", lambda: _epoch(cluster) >= epoch and cluster.worker("faults"))
    always(
        "nothing is restarted",
        lambda: [one.pid for one in cluster.drivers("faults")] == [driver.pid],
        SETTLED_SECONDS[cluster.engine],
    )


def test_at_the_end_every_record_was_processed_once(cluster: Cluster, feeder: Feeder) -> None:
    """The last test of the job that runs all the time: input ends here."""
    feeder.stop()
    wait_for_outputs(cluster.home, "faults", feeder.count)
    check_exact(cluster.home, "faults", feeder.count)


def test_workers_of_jobs_with_the_other_guarantees_are_killed(cluster: Cluster) -> None:
    jobs = ("at-least-once", "at-most-once")
    with ExitStack() as feeding:
        feeders = {name: feeding.enter_context(Feeder(cluster.home, name, rate=500)) for name in jobs}
        for name in jobs:
            code = SLOW.replace("parallelism=2", f"parallelism=2, guarantee={name!r}")
            cluster.submit(name, "--cores", "1", code=code)
        for _ in range(KILLS):
            for name in jobs:
                [driver] = cluster.drivers(name)
                eventually("a batch", cluster.batches_advance(name))
                driver.kill()
                cluster.wait_for_another(name, driver)
            for name in jobs:
                eventually("a batch of another worker", cluster.batches_advance(name))
    for name in jobs:
        cluster.cli("kill", name, "--drain")
    for name in jobs:
        eventually("it has ended", lambda name=name: cluster.job(name)["phase"] == "ENDED")  # type: ignore[misc]
    least, most = (Counter(record.value[1] for record in outputs(cluster.home, name)) for name in jobs)
    assert set(least) == set(range(feeders["at-least-once"].count)), "none is missing"
    assert set(most.values()) == {1}, "none is doubled"
    assert set(most) <= set(range(feeders["at-most-once"].count))
