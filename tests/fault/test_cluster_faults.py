"""A cluster of three ZooKeeper servers, two masters and three nodes, of which one thing after another dies.

One exactly-once job with continuous input runs all the time. After each death: a leader within 10 seconds,
the job's work running within 20 seconds plus the start of a Spark session, no twin workers. At the end: every
record once, none missing, and a numbering by key without gap or double.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from clusters import (
    Cluster,
    Feeder,
    check_exact,
    is_gone,
    running_cluster,
    until,
    wait_for_outputs,
)
from worker_lab import java_of

from support.waiting import DEADLINE, promised

LEADER_SECONDS = 10.0
MOVE_SECONDS = 20.0
SPARK_SECONDS = 180.0
"""What the start of a Spark session may take on a busy machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, "faults") as feeding:
        cluster.submit("faults", "--cores", "1")
        yield feeding


@pytest.fixture(autouse=True)
def _well_afterwards(cluster: Cluster, feeder: Feeder) -> Iterator[None]:
    yield
    until(cluster.leader, "a leader")
    until(lambda: cluster.worker("faults"), "a running worker")
    if feeder.feeding:
        until(cluster.batches_advance("faults"), "a batch after the fault")
    assert len(cluster.drivers("faults")) == 1, "no twins"


def _new_leader(cluster: Cluster, before: str) -> None:
    """Wait for another leader. Masters are asked one by one: a follower would ask the one that is away."""

    def leads() -> bool:
        if not any(cluster.leads(master) for master in cluster.masters if master.name != before):
            return False
        led = cluster.leader()
        return led is not None and led.name != before

    promised(LEADER_SECONDS, "another leader", leads, cluster.home)


def _another(cluster: Cluster, driver: psutil.Process) -> None:
    """Wait for another process of the job, when one has died."""
    promised(
        MOVE_SECONDS,
        "another worker",
        lambda: [one.pid for one in cluster.drivers("faults")] not in ([], [driver.pid]),
        cluster.home,
    )


def _epoch(cluster: Cluster) -> int:
    found = until(lambda: cluster.get("/cluster"), "an answer")
    return int(found["epoch"])


def test_the_leader_is_killed(cluster: Cluster) -> None:
    leader = until(cluster.leader, "a leader")
    worker = cluster.drivers("faults")[0].pid
    epoch = _epoch(cluster)
    leader.kill()
    _new_leader(cluster, leader.name)
    assert _epoch(cluster) > epoch
    leader.start()
    assert [driver.pid for driver in cluster.drivers("faults")] == [worker], "the job was left alone"


def test_a_supervisor_is_killed_and_its_successor_adopts_the_worker(cluster: Cluster) -> None:
    worker = until(lambda: cluster.worker("faults"), "a worker")
    [driver] = cluster.drivers("faults")
    supervisor = cluster.supervisors[worker["node"]]
    supervisor.kill()
    until(
        lambda: worker["node"] not in {node["name"] for node in cluster.get("/nodes")}, "the node is missed"
    )
    until(
        lambda: any(alarm["kind"] == "unsupervised" for alarm in cluster.get("/alarms")),
        "an alarm that nobody watches the worker",
    )
    until(cluster.batches_advance("faults"), "the worker goes on")
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid], "no twin elsewhere"
    supervisor.start()
    until(lambda: worker["node"] in {node["name"] for node in cluster.get("/nodes")}, "the node is back")
    until(
        lambda: any(
            figures["pid"] == driver.pid
            for node in cluster.get("/nodes")
            for figures in (node["report"] or {}).get("workers", ())
        ),
        "the worker is adopted",
    )
    until(lambda: not cluster.get("/alarms"), "the alarm is over")
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid]


def test_the_python_of_a_worker_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    driver.kill()
    _another(cluster, driver)


def test_the_java_of_a_worker_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    java_of(driver.pid).kill()
    until(lambda: is_gone(driver), "the worker leaves")
    _another(cluster, driver)


def test_every_process_of_a_node_is_killed(cluster: Cluster) -> None:
    worker = until(lambda: cluster.worker("faults"), "a worker")
    began = time.monotonic()
    cluster.kill_node(worker["node"])
    promised(
        MOVE_SECONDS,
        "a worker elsewhere is started",
        lambda: [one for one in cluster.drivers("faults") if one.is_running()],
        cluster.home,
    )
    until(
        lambda: (found := cluster.worker("faults")) and found["node"] != worker["node"],
        "it runs elsewhere",
        MOVE_SECONDS + SPARK_SECONDS - (time.monotonic() - began),
    )
    cluster.supervisors[worker["node"]].start()
    until(lambda: worker["node"] in {node["name"] for node in cluster.get("/nodes")}, "the node is back")


def test_one_zookeeper_server_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    os.kill(cluster.zookeeper.pids()[1], signal.SIGKILL)
    until(cluster.batches_advance("faults"), "the job goes on")
    promised(LEADER_SECONDS, "a leader", cluster.leader, cluster.home)
    cluster.zookeeper.start()
    cluster.zookeeper.wait_ready(timeout=DEADLINE)
    assert [one.pid for one in cluster.drivers("faults")] == [driver.pid]


def test_a_leader_that_was_paused_past_its_session_can_write_no_more(cluster: Cluster) -> None:
    leader = until(cluster.leader, "a leader")
    epoch = _epoch(cluster)
    leader.pause()
    try:
        _new_leader(cluster, leader.name)
        changed = _epoch(cluster)
        assert changed > epoch
    finally:
        leader.resume()
    until(lambda: "penstock_master_leader 0" in cluster.metrics(leader), "it knows that it leads no more")
    current = until(cluster.leader, "a leader")
    assert current.name != leader.name
    assert _epoch(cluster) == changed


def test_all_zookeeper_servers_are_away_for_half_a_minute(cluster: Cluster) -> None:
    [driver] = cluster.drivers("faults")
    epoch = _epoch(cluster)
    cluster.zookeeper.stop()
    back = time.monotonic() + 30.0
    while time.monotonic() < back:
        until(cluster.batches_advance("faults"), "the job keeps producing")
    cluster.zookeeper.start()
    until(lambda: _epoch(cluster) >= epoch and cluster.worker("faults"), "the cluster is back")
    # Whatever would be restarted would be within the bounds of the other cases.
    settled = time.monotonic() + MOVE_SECONDS
    while time.monotonic() < settled:
        assert [one.pid for one in cluster.drivers("faults")] == [driver.pid], "nothing was restarted"
        time.sleep(0.5)


def test_at_the_end_every_record_was_processed_once(cluster: Cluster, feeder: Feeder) -> None:
    """The last test of this module: input ends here."""
    feeder.stop()
    wait_for_outputs(cluster.home, "faults", feeder.count, 300.0)
    check_exact(cluster.home, "faults", feeder.count)
