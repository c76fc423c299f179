"""What users change about a job's replicas while it runs, and what replicas do that do not agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Cluster, Feeder, newest, running_cluster
from k_safety_lab import JOB, Replicas, alarms_of

from support.engines import EITHER
from support.waiting import eventually

pytestmark = pytest.mark.timeout(1500)

RATE = 200
SECOND = JOB.replace("(seen + n, value)", "(seen + n, value, 'second')")
"""The same job with other code in a task."""
DIFFERING = JOB.replace("import penstock as ps", "import os\n\nimport penstock as ps").replace(
    "(r.value % 50, r.value)", "(r.value % 50, r.value if r.value % 1000 else r.value + os.getpid() * 10**9)"
)
"""What it makes of some records depends on the process that runs it."""


@pytest.fixture(scope="module", params=EITHER)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster(
        home, nodes=4, masters=1, servers=1, cores=2, idle=True, engine=request.param
    ) as running:
        yield running


def _apart(replicas: Replicas, count: int) -> None:
    assert len(set(replicas.nodes().values())) == len(replicas.nodes()) == count


def test_too_few_nodes_are_refused_with_the_reason(cluster: Cluster) -> None:
    file = Replicas(cluster, "large").write(JOB)
    said = cluster.cli("submit", str(file), "--memory", "1g", "--cores", "1", "--k", "4", expect=1)
    assert "k=4 needs 5 nodes" in said
    assert not cluster.job("large")


def test_k_is_changed_while_the_job_runs(cluster: Cluster) -> None:
    replicas = Replicas(cluster, "counted")
    with Feeder(cluster.home, "counted", rate=RATE) as feeder:
        replicas.submit(safe="")  # Without replicas at first: nothing is agreed on.
        for k in (1, 2, 0, 1):
            cluster.cli("update", "counted", "--k", str(k))
            if k:
                replicas.wait_safe()
            else:
                eventually("the others have left", lambda: len(replicas.living()) == 1)
            _apart(replicas, k + 1)
            replicas.wait_output()
        said = cluster.cli("update", "counted", "--k", "4", expect=1)
        assert "k=4 needs 5 nodes" in said
        _apart(replicas, 2)
        feeder.stop()
        replicas.check_exact(feeder)
    replicas.end()


def test_code_is_updated_without_a_record_lost_or_doubled(cluster: Cluster) -> None:
    replicas = Replicas(cluster, "updated")
    with Feeder(cluster.home, "updated", rate=RATE) as feeder:
        replicas.submit("--k", "1")
        before = {folder for _, folder in replicas.living().values()}
        cluster.cli("update", "updated", str(replicas.write(SECOND)))
        eventually(
            "all replicas have new workers",
            lambda: before.isdisjoint(folder for _, folder in replicas.living().values()),
        )
        replicas.wait_safe()
        eventually(
            "output of the new code",
            lambda: any(len(record.value) == 3 for record in newest(cluster.home, "updated")),
        )
        feeder.stop()
        replicas.check_exact(feeder)
    replicas.end("--drain")


def test_all_replicas_die_at_once_and_the_job_comes_back(cluster: Cluster) -> None:
    replicas = Replicas(cluster, "lost")
    with Feeder(cluster.home, "lost", rate=RATE) as feeder:
        replicas.submit("--k", "1")
        replicas.kill(*(folder for _, folder in replicas.living().values()))
        replicas.wait_safe()
        replicas.wait_output()
        replicas.check_exact(feeder)

        # From the beginning: all input is processed once more, by replicas that agree anew.
        feeder.stop()
        replicas.end("--drain")
        replicas.check_exact(feeder)
        since = replicas.ends()
        replicas.submit("--k", "1", "--fresh")
        replicas.check_exact(feeder, since)
    replicas.end()


def test_a_replica_that_differs_is_told_of_and_rebuilt(cluster: Cluster) -> None:
    replicas = Replicas(cluster, "differing")
    with Feeder(cluster.home, "differing", rate=RATE) as feeder:
        file = replicas.write(DIFFERING)
        cluster.cli("submit", str(file), "--memory", "1g", "--cores", "1", "--k", "1")
        [alarm] = eventually("an alarm that replicas differ", lambda: alarms_of(cluster, "replicas-differ"))
        assert alarm["subject"] == "differing"
        assert alarm["evidence"]["batch"] >= 0
        assert alarm["evidence"]["vertex"] in {"out", "tally"}
        replicas.wait_output()
        feeder.stop()
        eventually("all has come out", lambda: replicas.written() >= feeder.count)
        # What counts is of one replica in each batch: every record once, whoever wrote it.
        numbers = sorted(record.value[1] % 10**9 for record in replicas.outputs())
        assert numbers == list(range(feeder.count))
    replicas.end()


@pytest.mark.parametrize(
    ("name", "options", "safe"),
    [
        ("warm", ["--warm-standby"], "standby ready"),
        ("held", ["--k", "1", "--publisher", "primary"], "k-safe"),
    ],
)
def test_a_standby_takes_over(cluster: Cluster, name: str, options: list[str], safe: str) -> None:
    replicas = Replicas(cluster, name)
    with Feeder(cluster.home, name, rate=RATE) as feeder:
        replicas.submit(*options, safe=safe)
        lost = replicas.nodes()[name]
        cluster.kill_node(lost)
        replicas.wait_output()
        replicas.wait_safe(safe)
        assert lost not in replicas.nodes().values()
        cluster.supervisors[lost].start()
        eventually("the node is back", lambda: len(cluster.get("/nodes")) == 4)
        replicas.check_exact(feeder)
    replicas.end()
