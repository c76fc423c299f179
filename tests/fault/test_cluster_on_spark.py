"""The faults of a cluster that need a real Spark: a handover between two of them, deaths of a driver's Java.

Everything else that may happen to a cluster is shown on workers without Spark (``test_cluster_faults.py``),
and on Spark as well in the long run of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import (
    MOVE_SECONDS,
    UNHURRIED,
    Cluster,
    Feeder,
    check_exact,
    is_gone,
    newest,
    running_cluster,
    wait_for_outputs,
)
from worker_lab import java_of

from support.engines import SPARK
from support.waiting import eventually, promised

NAME = "sparks"

SECOND = UNHURRIED.replace("(seen + n, value)", "(seen + n, value, 'second')")
"""The same job with other code in a task."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster(home, nodes=2, masters=1, servers=1, idle=True, engine=SPARK) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, NAME, rate=500) as feeding:
        cluster.submit(NAME, "--cores", "1", code=UNHURRIED)
        yield feeding


def _goes_on(cluster: Cluster) -> None:
    eventually("a worker runs", lambda: cluster.worker(NAME))
    eventually("a batch of it", cluster.batches_advance(NAME))
    assert len(cluster.drivers(NAME)) == 1, "no twins"


def test_new_code_goes_on_from_the_same_checkpoint(cluster: Cluster) -> None:
    [driver] = cluster.drivers(NAME)
    file = cluster.home / "second.py"
    file.write_text(SECOND.format(name=NAME))
    cluster.cli("update", NAME, str(file))
    eventually(
        "output of the new code",
        lambda: any(len(record.value) == 3 for record in newest(cluster.home, NAME)),
    )
    eventually("the old worker has left", lambda: is_gone(driver))
    _goes_on(cluster)


def test_the_java_of_a_worker_is_killed(cluster: Cluster) -> None:
    [driver] = cluster.drivers(NAME)
    java_of(driver.pid).kill()
    eventually("the worker leaves", lambda: is_gone(driver))
    cluster.wait_for_another(NAME, driver)
    _goes_on(cluster)


@pytest.mark.full
def test_the_java_of_a_worker_hangs(cluster: Cluster) -> None:
    """Its Python goes on and says no word for it: the supervisor ends both."""
    [driver] = cluster.drivers(NAME)
    java = java_of(driver.pid)
    java.suspend()
    eventually("the worker is killed", lambda: is_gone(driver))
    eventually("its Java is killed", lambda: is_gone(java))
    cluster.wait_for_another(NAME, driver)
    _goes_on(cluster)


@pytest.mark.full
def test_every_process_of_a_node_is_killed(cluster: Cluster) -> None:
    worker = eventually("a worker", lambda: cluster.worker(NAME))
    cluster.kill_node(worker["node"])
    promised(MOVE_SECONDS, "a worker elsewhere is started", lambda: cluster.drivers(NAME), cluster.home)
    _goes_on(cluster)
    assert eventually("a worker", lambda: cluster.worker(NAME))["node"] != worker["node"]


def test_at_the_end_every_record_was_processed_once(cluster: Cluster, feeder: Feeder) -> None:
    """The last test of this module: input ends here."""
    feeder.stop()
    wait_for_outputs(cluster.home, NAME, feeder.count)
    check_exact(cluster.home, NAME, feeder.count)
