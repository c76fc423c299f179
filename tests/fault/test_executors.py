"""A job over several nodes: executors that are killed, added and drained; and a Spark of the user's own."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import free_port
from worker_lab import (
    Lab,
    check_nothing_is_open,
    check_on_no_command_line,
    java_of,
    running_zookeeper,
    tree_of,
)

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.daemon.worker_folder import EXIT_ENDED, read_exit
from penstock.java_runtime import find_java, spark_jars
from penstock.spark.spark_settings import NO_SECRET
from penstock.supervisor.executor_command import MODULE_OPTIONS
from support.engines import SPARK
from support.waiting import DEADLINE, eventually

# What these show in a cluster of Penstock's own is shown by test_cluster_executors.py, in each run.
pytestmark = pytest.mark.full


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with running_zookeeper(tmp_path / "zookeeper") as server, Lab(tmp_path, server, SPARK) as running:
        yield running


def _slot(ordinal: int) -> ExecutorSlot:
    return ExecutorSlot(ordinal, f"n{ordinal}", 1, 512 << 20)


def test_executors_come_and_go_while_a_job_runs(lab: Lab) -> None:
    lab.keep_feeding()
    slots = (_slot(2), _slot(3))
    assignment = lab.assignment(1, executors=slots)
    lab.assign(assignment)
    worker = lab.start_worker(assignment)
    info = lab.wait_connected(1)
    intruder = lab.start_executor(info, _slot(9), 1, "127.0.0.2", secret=NO_SECRET)
    second = lab.start_executor(info, slots[0], 1, "127.0.0.2")
    third = lab.start_executor(info, slots[1], 1, "127.0.0.3")
    lab.wait_phase("running", 1)
    lab.wait_batches(2, 1)
    for executor in (second, third):
        eventually("a task on each executor", lambda pid=executor.pid: len(tree_of(pid)) > 1)  # type: ignore[misc]
    check_on_no_command_line([lab.ring.spark_secret("counted", 1, 1)])
    check_nothing_is_open(java_of(worker.pid))
    assert intruder.wait(DEADLINE) != 0

    second.kill()
    lab.wait_batches(2, 1)
    fourth = lab.start_executor(info, _slot(4), 1, "127.0.0.4")
    eventually("a task on the new executor", lambda: len(tree_of(fourth.pid)) > 1)
    third.send_signal(signal.SIGPWR)
    assert third.wait(DEADLINE) == 0
    lab.wait_batches(2, 1)
    lab.stop_feeding()
    lab.check_output()
    assert read_exit(lab.instance(1, 1)) is None, "no batch has failed"

    lab.assign(None)
    assert worker.wait(DEADLINE) == EXIT_ENDED
    result = lab.result()
    assert result is not None
    assert result.outcome == "stopped"
    # Without a driver an executor has nothing to do here.
    fourth.wait(DEADLINE)


def test_a_job_runs_on_a_spark_cluster_of_the_users_own(lab: Lab) -> None:
    url = _start_spark_cluster(lab)
    lab.feed(500)
    assignment = lab.assignment(1, spark_master=url, until="drained")
    lab.assign(assignment)
    worker = lab.start_worker(assignment)
    assert worker.wait(DEADLINE) == EXIT_ENDED
    result = lab.result()
    assert result is not None
    assert (result.outcome, result.progress.records_out) == ("drained", 500)
    lab.check_output()


def _start_spark_cluster(lab: Lab) -> str:
    """Start a master and a worker of Spark's own, as a user would have them."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    java = [str(find_java()), *MODULE_OPTIONS, "-Xmx256m", "-Dspark.master.rest.enabled=false"]
    java += ["-cp", f"{spark_jars()}/*"]
    # As Spark's own scripts set them.
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(spark_jars().parent),
        "SPARK_SCALA_VERSION": "2.13",
    }
    master = "org.apache.spark.deploy.master.Master"
    command = [*java, master, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    lab.start(command, lab.folder, environment)
    eventually("Spark's master", lambda: _listens(port))
    worker = "org.apache.spark.deploy.worker.Worker"
    command = [*java, worker, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    lab.start(
        [*command, "--work-dir", str(lab.folder / "work"), "--webui-port", "0", url], lab.folder, environment
    )
    return url


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
