"""A job over several nodes: a driver on one, executors where the assignment says. They need a real Spark."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import UNHURRIED, Cluster, Feeder, check_exact, running_cluster, wait_for_outputs
from worker_lab import check_nothing_is_open, check_on_no_command_line, java_of

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.document_codec import decode
from penstock.cluster.worker_documents import WorkerInfo
from penstock.coord import store_paths
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.spark.spark_settings import NO_SECRET
from penstock.supervisor.executor_command import executor_command
from support.waiting import DEADLINE, eventually

NAME = "spread"

TALKING = UNHURRIED.replace(
    "import penstock as ps",
    """import logging

import penstock as ps

print("loaded")


def by_key(record):
    if record.value % 100 == 0:
        print("seen", record.value)
        logging.getLogger("jobs").warning("hundreds %s", record.value)
    return record.value % 50, record.value""",
).replace("lambda r: (r.value % 50, r.value)", "by_key")
"""The same job, whose code prints and logs now and then."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("cluster"), nodes=3, masters=1, servers=1, cores=2, idle=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, NAME, rate=500) as feeding:
        options = ["--cores", "2", "--executors", "2", "--executor-cores", "1", "--executor-memory", "512m"]
        cluster.submit(NAME, *options, code=TALKING)
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
    executors = eventually(
        "two executors", lambda: (len(found := _executors(cluster)) == 2 and found) or None
    )
    assert set(executors) == set(slots.values())
    for node, [process] in executors.items():
        host = f"127.0.0.{int(node[1:]) + 1}"
        listening = eventually("it listens", lambda executor=process: _listening(executor))  # type: ignore[misc]
        assert listening == {host}
        assert host in process.cmdline()


def _said(cluster: Cluster, *options: str) -> list[dict[str, Any]]:
    lines = map(json.loads, cluster.cli("logs", NAME, "-o", "json", *options).splitlines())
    return [line for line in lines if "stream" in line]


def test_what_user_code_says_on_the_nodes_of_executors_is_in_the_log(
    cluster: Cluster, feeder: Feeder
) -> None:
    nodes = set(_slots(cluster).values())

    def from_both() -> list[dict[str, Any]] | None:
        said = _said(cluster, "--vertex", "by_key")
        return said if {line["node"] for line in said} == nodes else None

    told = eventually("output from both executors", from_both, every=1.0)
    assert {line["process"] for line in told} == {"executor-1", "executor-2"}
    assert {(line["level"], line["stream"]) for line in told} == {("info", "stdout"), ("warning", "logging")}
    driver = [line for line in _said(cluster) if line["event"] == "loaded" and line["process"] == "worker"]
    assert {(line["node"], line.get("vertex")) for line in driver} == {
        (eventually("a worker", lambda: cluster.worker(NAME))["node"], None)
    }


def test_no_secret_is_on_a_command_line_and_nothing_is_open(cluster: Cluster, feeder: Feeder) -> None:
    worker = eventually("a worker", lambda: cluster.worker(NAME))
    ring = cluster.keyring
    secrets = [ring.spark_secret(NAME, worker["revision"], worker["attempt"])]
    secrets += [ring.token, ring.node_token, ring.store_password, ring.key.hex()]
    check_on_no_command_line(secrets)
    check_nothing_is_open(java_of(worker["pid"]))


def test_an_executor_without_the_secret_is_not_let_in(
    cluster: Cluster, feeder: Feeder, tmp_path: Path
) -> None:
    worker = eventually("a worker", lambda: cluster.worker(NAME))
    store = ZooKeeperStore.connect(cluster.connect, cluster.keyring.store_password)
    try:
        node = store.get(store_paths.worker(NAME, worker["revision"], worker["attempt"]))
    finally:
        store.close()
    assert node is not None
    command, environment = executor_command(
        decode(WorkerInfo, node.data),
        ExecutorSlot(9, worker["node"], 1, 512 << 20),
        9001,
        host="127.0.0.9",
        secret=NO_SECRET,
        bundle=tmp_path,
        storage=cluster.home,
        folder=tmp_path,
    )
    intruder = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    # One that is accepted stays. This one left because the driver did not take what it showed for the secret.
    assert intruder.returncode == 1, intruder.stderr
    assert b"org.apache.spark.network.crypto.AuthClientBootstrap" in intruder.stderr


def test_an_executor_that_is_killed_is_started_again(cluster: Cluster, feeder: Feeder) -> None:
    node, [process] = next(iter(sorted(_executors(cluster).items())))
    process.kill()
    eventually(
        "another executor there",
        lambda: [one for one in _executors(cluster).get(node, ()) if one.pid != process.pid],
    )
    eventually("a batch", cluster.batches_advance(NAME))


def test_the_node_of_an_executor_is_killed(cluster: Cluster, feeder: Feeder) -> None:
    worker = eventually("a worker", lambda: cluster.worker(NAME))
    lost = next(node for node in _slots(cluster).values() if node != worker["node"])
    cluster.kill_node(lost)
    eventually("a batch without it", cluster.batches_advance(NAME))
    still = eventually("a worker", lambda: cluster.worker(NAME))
    cluster.supervisors[lost].start()
    for what in ("revision", "attempt", "node", "pid"):
        assert still[what] == worker[what], "the driver was left alone"
    # There again, or elsewhere if the node was missed for too long.
    eventually("two executors again", lambda: _count(cluster) == 2)


@pytest.mark.full
def test_a_new_node_gets_an_executor_on_request(cluster: Cluster, feeder: Feeder) -> None:
    revision = eventually("a worker", lambda: cluster.worker(NAME))["revision"]
    cluster.add_node(4)
    eventually("the node is registered", lambda: len(cluster.get("/nodes")) == 4)
    # A node that lost its executor to another when it was missed has as much room as the new one.
    taken = {eventually("a worker", lambda: cluster.worker(NAME))["node"], *_slots(cluster).values()}
    allowed = [option for node in sorted({*taken, "n4"}) for option in ("--node", node)]
    cluster.cli("scale", NAME, "--executors", "3", *allowed)
    eventually("an executor there", lambda: "n4" in _executors(cluster))
    assert eventually("a worker", lambda: cluster.worker(NAME))["revision"] == revision
    eventually("a batch", cluster.batches_advance(NAME))


def test_an_executor_is_drained_and_removed(cluster: Cluster, feeder: Feeder) -> None:
    wanted = len(_slots(cluster))
    eventually("all executors", lambda: _count(cluster) == wanted)
    before = {process.pid for processes in _executors(cluster).values() for process in processes}
    cluster.cli("scale", NAME, "--executors", str(wanted - 1))
    eventually("one has left by itself", lambda: _count(cluster) == wanted - 1)
    after = {process.pid for processes in _executors(cluster).values() for process in processes}
    assert after < before
    eventually("a batch", cluster.batches_advance(NAME))


def _heaps(cluster: Cluster) -> list[str]:
    """How much memory the Javas of the executors that live may use."""
    found = []
    for process in [process for processes in _executors(cluster).values() for process in processes]:
        with suppress(psutil.NoSuchProcess):
            found += [option for option in process.cmdline() if option.startswith("-Xmx")]
    return found


@pytest.mark.full
def test_executors_get_the_size_that_is_asked_for(cluster: Cluster, feeder: Feeder) -> None:
    wanted = len(_slots(cluster))
    cluster.cli("scale", NAME, "--executor-memory", "640m")
    eventually("executors of that size", lambda: _heaps(cluster) == ["-Xmx640m"] * wanted)
    eventually("a batch", cluster.batches_advance(NAME))


def test_no_record_was_lost_or_doubled(cluster: Cluster, feeder: Feeder) -> None:
    feeder.stop()
    wait_for_outputs(cluster.home, NAME, feeder.count)
    check_exact(cluster.home, NAME, feeder.count)
    cluster.cli("kill", NAME)
    eventually("it has ended", lambda: cluster.job(NAME)["phase"] == "ENDED")
    eventually("its executors are gone", lambda: not _executors(cluster))
