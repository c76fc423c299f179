"""A job over several nodes: a driver on one, executors where the assignment says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clusters import Cluster, Feeder, check_exact, running_cluster, until, wait_for_outputs

NAME = "spread"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("cluster"), nodes=3, masters=1, servers=1, cores=2, idle=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, NAME) as feeding:
        options = ["--cores", "2", "--executors", "2", "--executor-cores", "1", "--executor-memory", "512m"]
        cluster.submit(NAME, *options)
        yield feeding


def _slots(cluster: Cluster) -> dict[int, str]:
    """Where the assignment says the executors are."""
    assignment = cluster.job(NAME)["assignment"]
    return {slot["ordinal"]: slot["node"] for slot in assignment["executors"]}


def _executors(cluster: Cluster) -> dict[str, list[psutil.Process]]:
    """The executors that live, by node."""
    found: dict[str, list[psutil.Process]] = {}
    for node in cluster.supervisors:
        for process in cluster.living(node, f"{NAME}-executor-"):
            found.setdefault(node, []).append(process)
    return found


def _count(cluster: Cluster) -> int:
    return sum(len(processes) for processes in _executors(cluster).values())


def _listening(process: psutil.Process) -> set[str]:
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_executors_run_where_they_were_assigned(cluster: Cluster, feeder: Feeder) -> None:
    slots = _slots(cluster)
    assert len(set(slots.values())) == 2
    executors = until(lambda: (len(found := _executors(cluster)) == 2 and found) or None, "two executors")
    assert set(executors) == set(slots.values())
    for node, [process] in executors.items():
        host = f"127.0.0.{int(node[1:]) + 1}"
        listening = until(lambda executor=process: _listening(executor), "it listens")  # type: ignore[misc]
        assert listening == {host}
        assert host in process.cmdline()


def test_no_secret_is_on_a_command_line(cluster: Cluster, feeder: Feeder) -> None:
    worker = until(lambda: cluster.worker(NAME), "a worker")
    secrets = {
        cluster.keyring.spark_secret(NAME, worker["revision"], worker["attempt"]),
        cluster.keyring.token,
        cluster.keyring.node_token,
        cluster.keyring.store_password,
        cluster.keyring.key.hex(),
    }
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text(errors="replace")
        except OSError:
            continue
        assert not [secret for secret in secrets if secret in command]


def test_an_executor_that_is_killed_is_started_again(cluster: Cluster, feeder: Feeder) -> None:
    node, [process] = next(iter(sorted(_executors(cluster).items())))
    process.kill()
    until(
        lambda: [one for one in _executors(cluster).get(node, ()) if one.pid != process.pid],
        "another executor there",
    )
    until(cluster.batches_advance(NAME), "a batch")


def test_the_node_of_an_executor_is_killed(cluster: Cluster, feeder: Feeder) -> None:
    worker = until(lambda: cluster.worker(NAME), "a worker")
    lost = next(node for node in _slots(cluster).values() if node != worker["node"])
    cluster.kill_node(lost)
    until(cluster.batches_advance(NAME), "a batch without it")
    still = until(lambda: cluster.worker(NAME), "a worker")
    cluster.supervisors[lost].start()
    for what in ("revision", "attempt", "node", "pid"):
        assert still[what] == worker[what], "the driver was left alone"
    # There again, or elsewhere if the node was missed for too long.
    until(lambda: _count(cluster) == 2, "two executors again")


def test_a_new_node_gets_an_executor_on_request(cluster: Cluster, feeder: Feeder) -> None:
    revision = until(lambda: cluster.worker(NAME), "a worker")["revision"]
    cluster.add_node(4)
    until(lambda: len(cluster.get("/nodes")) == 4, "the node is registered")
    # A node that lost its executor to another when it was missed has as much room as the new one.
    taken = {until(lambda: cluster.worker(NAME), "a worker")["node"], *_slots(cluster).values()}
    allowed = [option for node in sorted({*taken, "n4"}) for option in ("--node", node)]
    cluster.cli("scale", NAME, "--executors", "3", *allowed)
    until(lambda: "n4" in _executors(cluster), "an executor there")
    assert until(lambda: cluster.worker(NAME), "a worker")["revision"] == revision
    until(cluster.batches_advance(NAME), "a batch")


def test_an_executor_is_drained_and_removed(cluster: Cluster, feeder: Feeder) -> None:
    until(lambda: _count(cluster) == 3, "three executors")
    before = {process.pid for processes in _executors(cluster).values() for process in processes}
    cluster.cli("scale", NAME, "--executors", "2")
    until(lambda: _count(cluster) == 2, "one has left by itself")
    after = {process.pid for processes in _executors(cluster).values() for process in processes}
    assert after < before
    until(cluster.batches_advance(NAME), "a batch")


def test_no_record_was_lost_or_doubled(cluster: Cluster, feeder: Feeder) -> None:
    feeder.stop()
    wait_for_outputs(cluster.home, NAME, feeder.count, 300.0)
    check_exact(cluster.home, NAME, feeder.count)
    cluster.cli("kill", NAME)
    until(lambda: cluster.job(NAME)["phase"] == "ENDED", "it has ended")
    until(lambda: not _executors(cluster), "its executors are gone")
