"""Failures that no worker tells of by itself: a start that hangs, and code that dies on its first record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from clusters import JOB, Cluster, Feeder, check_exact, running_cluster, wait_for_outputs

from support.engines import LOCAL
from support.waiting import eventually

HANGING = """
import os
import time

import penstock as ps

if "PENSTOCK_INSTANCE" in os.environ:  # In a worker, and not where it is submitted.
    time.sleep(3600)
job = ps.Job("{name}")
source = job.source("in", ps.LogSource("{name}-in"))
source >> job.sink("out", ps.LogSink("{name}-out"))
"""

DYING = "import os\n" + JOB.replace("lambda r: (r.value % 50, r.value)", "lambda r: os._exit({code})")
"""The usual job, whose worker dies on its first record."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    lab = {"starting": 8.0, "longest_retry": 1.0}
    with running_cluster(home, nodes=1, masters=1, servers=1, engine=LOCAL, idle=True, lab=lab) as running:
        yield running


def _failures(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.job(name).get("failures") or {}


def _refused_updates(cluster: Cluster) -> list[dict[str, Any]]:
    return [alarm for alarm in cluster.get("/alarms") if alarm["kind"] == "update-refused"]


def test_a_start_that_hangs_is_counted_and_told(cluster: Cluster) -> None:
    file = cluster.home / "hanging.py"
    file.write_text(HANGING.format(name="hanging"))
    said = cluster.cli("submit", str(file), "--memory", "1g", "--wait", "--timeout", "1", expect=1)
    assert "job 'hanging' is STARTING after 1 s: its worker on n1 is starting" in said or "n1 starts" in said
    failures = eventually("it is counted", lambda: _failures(cluster, "hanging"))
    assert failures["reason"].startswith("hung: its process is alive, but made no progress for ")
    assert not failures["recent"][-1]["well"]
    cluster.cli("kill", "hanging")
    eventually("it has ended", lambda: cluster.job("hanging")["phase"] == "ENDED")


def test_two_updates_that_die_on_their_first_record_leave_the_job_as_it_was(cluster: Cluster) -> None:
    name = "rolling"
    with Feeder(cluster.home, name, rate=500) as feeder:
        cluster.submit(name, "--cores", "1")
        for code in (8, 9):
            file = cluster.home / f"dying_{code}.py"
            file.write_text(DYING.replace("{code}", str(code)).format(name=name))
            cluster.cli("update", name, str(file))
        [alarm] = eventually("it goes back", lambda: _refused_updates(cluster))
        assert "it ended with exit code 9" in alarm["reason"]
        eventually("the code before is wanted", lambda: cluster.job(name)["spec"]["generation"] == 1)
        eventually("it runs", lambda: cluster.worker(name))
        eventually("a batch of the code before", cluster.batches_advance(name))
    cluster.cli("kill", name, "--drain", "--wait")
    wait_for_outputs(cluster.home, name, feeder.count)
    check_exact(cluster.home, name, feeder.count)
