"""What users change while a job runs: its code, place and size. None of it loses or doubles a record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import JOB, Cluster, Feeder, check_exact, newest, outputs, running_cluster, wait_for_outputs

from penstock.log import Log, log_folder
from penstock.record import Record
from support.engines import EITHER, LOCAL
from support.paused_processes import pause
from support.waiting import eventually

NAME = "changing"

SECOND = JOB.replace("(seen + n, value)", "(seen + n, value, 'second')")
"""The same job with other code in a task."""

FAILING = """
import os

import penstock as ps

job = ps.Job("{name}")
source = job.source("in", ps.LogSource("{name}-in"))
source >> job.task("die", lambda r: os._exit(9)) >> job.sink("out", ps.LogSink("{name}-out"))
"""

STATELESS = """
import penstock as ps

job = ps.Job("{name}")
source = job.source("in", ps.LogSource("{name}-in"))
source >> job.task("tally", lambda r: r.value) >> job.sink("out", ps.LogSink("{name}-out"))
"""


PARAMETERS = """
import os

import penstock as ps

if ps.params["since"] == "never":
    raise ValueError("since must be a year")
loaded = ps.params["since"]


def tag(r):
    secret = ps.params["api_key"]
    return r.key, [loaded, ps.params["since"], secret, os.environ["REGION"], os.environ["SUPERVISED"]]


job = ps.Job("{name}")
source = job.source("in", ps.LogSource("{name}-in"))
source >> job.task("tag", tag) >> job.sink("out", ps.LogSink("{name}-out"))
"""


@pytest.fixture(scope="module", params=EITHER)
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    # A worker without Spark beats within a second of its start: it need not be given half a minute.
    heartbeat = 5.0 if request.param == LOCAL else None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SUPERVISED", "by us")
        with running_cluster(
            home,
            nodes=2,
            masters=1,
            servers=1,
            cores=4,
            engine=request.param,
            heartbeat=heartbeat,
            lab={"longest_retry": 1.0},
        ) as running:
            yield running


@pytest.fixture(scope="module")
def feeder(cluster: Cluster) -> Iterator[Feeder]:
    with Feeder(cluster.home, NAME) as feeding:
        cluster.submit(NAME, "--cores", "1", "--node", "n1", "--node", "n2")
        yield feeding


def _generation(cluster: Cluster, revision: int) -> bool:
    worker = cluster.worker(NAME)
    return worker is not None and worker["revision"] > revision


def _failed(alarms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alarm for alarm in alarms if alarm["kind"] == "job-failed"]


def _alarms(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return [alarm for alarm in cluster.get("/alarms") if alarm["subject"] == name]


def _revision(cluster: Cluster) -> int:
    return int(eventually("a worker", lambda: cluster.worker(NAME))["revision"])


def test_new_code_goes_on_from_the_same_checkpoint(cluster: Cluster, feeder: Feeder) -> None:
    before = _revision(cluster)
    file = cluster.home / "second.py"
    file.write_text(SECOND.format(name=NAME))
    cluster.cli("update", NAME, str(file))
    eventually("a worker with the new code", lambda: _generation(cluster, before))
    eventually(
        "output of the new code",
        lambda: any(len(record.value) == 3 for record in newest(cluster.home, NAME)),
    )
    assert cluster.job(NAME)["spec"]["generation"] == 2
    eventually("the old worker has left", lambda: len(cluster.drivers(NAME)) == 1)


def test_code_that_cannot_go_on_is_refused_beforehand_with_the_reason(
    cluster: Cluster, feeder: Feeder
) -> None:
    file = cluster.home / "stateless.py"
    file.write_text(STATELESS.format(name=NAME))
    before = _revision(cluster)
    said = cluster.cli("update", NAME, str(file), expect=1)
    assert "the state of vertex 'tally' would be lost" in said
    assert cluster.job(NAME)["spec"]["generation"] == 2
    assert _revision(cluster) == before


def test_parameters_stay_with_a_job_until_they_are_changed(cluster: Cluster) -> None:
    name = "given"
    log = Log.create(log_folder(f"{name}-in", cluster.home))
    log.append([Record("first", 1)])
    given = ("--param", "since=2025", "--param", "api_key=abcdefgh")
    cluster.submit(name, *given, "--env", "REGION=eu", "--env", "SUPERVISED", code=PARAMETERS)
    eventually("the first record", lambda: len(outputs(cluster.home, name)) == 1)
    cluster.cli("update", name, "--param", "since=2026", "--wait")
    log.append([Record("second", 2)])
    eventually("the update has run well", lambda: cluster.job(name)["spec"]["before"] is None)
    said = cluster.cli("update", name, "--param", "since=never", "--wait", expect=1)
    assert f"the update of job '{name}' was refused, and the job returned to its previous code: " in said
    [alarm] = eventually("that it is refused", lambda: _alarms(cluster, name))
    assert "ValueError: since must be a year" in alarm["reason"]
    assert cluster.job(name)["spec"]["params"]["since"] == "2026"
    log.append([Record("third", 3)])
    eventually("the third record", lambda: len(outputs(cluster.home, name)) == 3)
    assert {record.key: record.value for record in outputs(cluster.home, name)} == {
        "first": ["2025", "2025", "abcdefgh", "eu", "by us"],
        "second": ["2026", "2026", "abcdefgh", "eu", "by us"],
        "third": ["2026", "2026", "abcdefgh", "eu", "by us"],
    }
    assert "abcdefgh" not in cluster.cli("status", name, "-o", "json")
    cluster.cli("alarms", "--clear", alarm["id"])
    cluster.cli("kill", name, "--wait")


def test_a_job_moves_to_another_node(cluster: Cluster, feeder: Feeder) -> None:
    worker = eventually("a worker", lambda: cluster.worker(NAME))
    target = "n2" if worker["node"] == "n1" else "n1"
    cluster.cli("migrate", NAME, "--to", target)
    eventually("it runs there", lambda: (found := cluster.worker(NAME)) and found["node"] == target)
    eventually("a batch there", cluster.batches_advance(NAME))
    eventually("the old worker has left", lambda: len(cluster.drivers(NAME)) == 1)


def test_a_job_gets_more_cores(cluster: Cluster, feeder: Feeder) -> None:
    before = _revision(cluster)
    cluster.cli("scale", NAME, "--cores", "2")
    eventually("a worker with two cores", lambda: _generation(cluster, before))
    assert cluster.job(NAME)["assignment"]["settings"]["resources"]["cores"] == 2


def test_a_hung_worker_is_replaced(cluster: Cluster, feeder: Feeder) -> None:
    [driver] = eventually("one worker", lambda: found if len(found := cluster.drivers(NAME)) == 1 else None)
    pause(driver.pid)
    eventually("it is killed", lambda: driver.pid not in [one.pid for one in cluster.drivers(NAME)])
    eventually("another one runs", lambda: cluster.worker(NAME))
    eventually("a batch", cluster.batches_advance(NAME))


def test_a_running_job_can_be_given_a_new_worker(cluster: Cluster, feeder: Feeder) -> None:
    before = _revision(cluster)
    cluster.cli("resubmit", NAME)
    eventually("a new worker", lambda: _generation(cluster, before))


def test_a_killed_job_stays_ended_and_goes_on_when_it_is_submitted_again(
    cluster: Cluster, feeder: Feeder
) -> None:
    cluster.cli("kill", NAME)
    eventually("it has ended", lambda: cluster.job(NAME)["phase"] == "ENDED")
    eventually("its worker has left", lambda: not cluster.drivers(NAME))
    [master] = cluster.masters
    master.kill()
    master.start()
    eventually("a leader", cluster.leader)
    assert cluster.job(NAME)["phase"] == "ENDED"
    assert not cluster.drivers(NAME)
    cluster.cli("resubmit", NAME)
    eventually("it runs again", lambda: cluster.worker(NAME))


def test_a_drained_job_has_processed_all_there_was_exactly_once(cluster: Cluster, feeder: Feeder) -> None:
    feeder.stop()
    cluster.cli("kill", NAME, "--drain")
    eventually("it has ended", lambda: cluster.job(NAME)["phase"] == "ENDED")
    wait_for_outputs(cluster.home, NAME, feeder.count)
    check_exact(cluster.home, NAME, feeder.count)


def test_a_forgotten_job_goes_on_if_its_data_stayed_and_leaves_nothing_if_not(
    cluster: Cluster, feeder: Feeder
) -> None:
    def forget(*options: str) -> None:
        eventually("it has ended", lambda: cluster.job(NAME)["phase"] == "ENDED")
        eventually("no worker of it is left", lambda: not cluster.job(NAME)["workers"])
        cluster.cli("forget", NAME, *options)
        eventually("the folders of its processes are gone", lambda: not cluster.instances(NAME))

    forget()
    assert NAME not in [job["name"] for job in cluster.get("/jobs")]
    assert (cluster.home / "cluster-jobs" / NAME).is_dir()
    file = cluster.home / "again.py"
    file.write_text(JOB.format(name=NAME))
    cluster.cli("submit", str(file), "--memory", "1g", "--until", "drained")
    forget("--data")
    check_exact(cluster.home, NAME, feeder.count)
    eventually("its data is gone", lambda: not (cluster.home / "cluster-jobs" / NAME).exists())


@pytest.mark.timeout(1200)
def test_a_worker_that_keeps_dying_is_excluded_until_somebody_clears_it(cluster: Cluster) -> None:
    with Feeder(cluster.home, "dying", rate=100):
        file = cluster.home / "dying.py"
        file.write_text(FAILING.format(name="dying"))
        cluster.cli("submit", str(file), "--memory", "1g")
        # Each of eight workers starts a Spark session before it dies.
        eventually("it has failed", lambda: cluster.job("dying").get("phase") == "FAILED")
        eventually("nothing of it runs", lambda: not cluster.drivers("dying"))
        # People are told after the job was given up; and a node that is away for a moment has an alarm, too.
        eventually("an alarm", lambda: _failed(cluster.get("/alarms")))
        [alarm] = _failed(json.loads(cluster.cli("alarms", "-o", "json")))
        assert alarm["subject"] == "dying"
        cluster.cli("alarms", "--clear", alarm["id"])
        eventually("it is tried again", lambda: cluster.drivers("dying"))
        cluster.cli("kill", "dying")
        eventually("it has ended", lambda: cluster.job("dying")["phase"] == "ENDED")
    eventually("no alarm is left", lambda: not _alarms(cluster, "dying"))
