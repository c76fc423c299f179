"""What users ask of jobs with replicas: granted or refused with the reason, and shown as one job."""

from __future__ import annotations

from typing import Any

import pytest
from replicated_cluster import Cluster, code, joined, submission

from penstock.cluster.client_requests import InvalidRequestError, NotFoundError, RefusedError
from penstock.cluster.job_documents import Alarm, JobStatus
from penstock.cluster.worker_documents import ReplicaReport
from penstock.coord import store_paths
from support.settings import replace

NEW = "b" * 64
SOCKET = {"name": "in", "kind": "source", "replicable": False}
PLAIN = {"name": "sum", "stateful": True, "sync": None, "window": {"type": "CountWindow"}}
TIMED = {"name": "count", "stateful": True, "sync": None, "window": {"type": "TimeWindow"}}
ALIGNED = {"name": "join", "stateful": False, "sync": "same-key", "window": None}


def _replication(cluster: Cluster) -> tuple[int, str, str, bool, bool]:
    spec = cluster.spec()
    return (
        spec.settings.replicas.k,
        spec.settings.replicas.recovery,
        spec.settings.replicas.publisher,
        spec.settings.replicas.warm_standby,
        spec.agreed,
    )


@pytest.mark.parametrize(
    ("structure", "over", "expected"),
    [
        (code(), {}, (0, "copy", "first", False, False)),
        (code(k=1), {}, (1, "copy", "first", False, True)),
        (code(k=1), {"k": 2}, (2, "copy", "first", False, True)),
        (code(k=1), {"k": 0}, (0, "copy", "first", False, False)),
        (code(), {"k": 1, "recovery": "next-window"}, (1, "next-window", "first", False, True)),
        (code(), {"k": 1, "publisher": "primary"}, (1, "copy", "primary", False, True)),
        (code(), {"warm_standby": True}, (0, "copy", "first", True, True)),
        (code(warm_standby=True), {"warm_standby": False}, (0, "copy", "first", False, False)),
        (code(vertices=[SOCKET]), {"recovery": "next-window"}, (0, "next-window", "first", False, False)),
        (code(vertices=[PLAIN, ALIGNED, TIMED]), {"k": 1}, (1, "copy", "first", False, True)),
        (
            code(vertices=[TIMED, 7]),
            {"k": 1, "recovery": "next-window"},
            (1, "next-window", "first", False, True),
        ),
    ],
)
def test_what_the_user_says_goes_over_what_the_code_says(
    structure: dict[str, Any], over: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    cluster = Cluster()
    cluster.service.submit(submission(structure, **over), NEW)
    assert _replication(cluster) == expected


@pytest.mark.parametrize(
    ("structure", "over", "reason"),
    [
        (code(), {"k": 1, "data_location": "node"}, "keeps its data with its node"),
        (code(), {"warm_standby": True, "data_location": "node"}, "keeps its data with its node"),
        (code(), {"k": -1}, "replicas.k: .* greater than or equal to 0, not -1"),
        (code(k=True), {}, "k: .* integer, not True"),
        (code(k=None), {}, "k: .* integer, not None"),
        (code(recovery=[]), {}, "recovery: Input should be 'copy' or 'next-window'"),
        (code(), {"recovery": "soon"}, "not 'soon'"),
        (
            code(guarantee="at-least-once"),
            {"k": 1},
            "replicas are exactly-once, and job 'job' is at-least-once",
        ),
        (code(guarantee="at-most-once"), {"warm_standby": True}, "replicas are exactly-once"),
        (code(), {"k": 1, "warm_standby": True}, "warm_standby is for k=0"),
        (code(), {"publisher": "primary"}, "needs other replicas"),
        (code(vertices=[SOCKET]), {"k": 1}, "vertex 'in': several replicas cannot read this source"),
        (code(vertices=[PLAIN]), {"k": 1, "recovery": "next-window"}, "vertex 'sum': .* windows of time"),
        (code(vertices=[ALIGNED]), {"k": 1, "recovery": "next-window"}, "vertex 'join': .* windows of time"),
    ],
)
def test_what_contradicts_itself_is_refused(
    structure: dict[str, Any], over: dict[str, Any], reason: str
) -> None:
    cluster = Cluster()
    with pytest.raises(InvalidRequestError, match=reason):
        cluster.service.submit(submission(structure, **over), NEW)
    assert cluster.documents.jobs() == {}


def test_a_cluster_that_is_too_small_is_told_of() -> None:
    with pytest.raises(RefusedError, match="cannot have its replicas: k=2 needs 3 nodes"):
        Cluster(nodes=2).service.submit(submission(k=2), NEW)
    with pytest.raises(RefusedError, match="needs nodes in 3 racks"):
        Cluster(nodes=4, racks=2).service.submit(submission(k=2), NEW)
    with pytest.raises(RefusedError, match="needs 2 nodes"):
        Cluster(nodes=1).service.submit(submission(warm_standby=True), NEW)
    with pytest.raises(RefusedError, match="needs 2 nodes"):
        Cluster().service.submit(submission(k=1, nodes=("n1",)), NEW)
    Cluster(nodes=0).service.submit(submission(), NEW)


def test_replicas_on_a_spark_of_ones_own_are_granted() -> None:
    cluster = Cluster()
    cluster.service.submit(submission(k=1, spark_master="spark://there:7077"), NEW)
    assert cluster.spec().settings.replicas.k == 1


def test_what_was_agreed_on_goes_on_to_count_until_it_is_forgotten() -> None:
    cluster = Cluster()
    cluster.job(phase="ENDED", revision=4, agreed=True, k=1)
    cluster.service.submit(submission(), NEW)
    assert (cluster.spec().settings.replicas.k, cluster.spec().agreed) == (0, True)
    cluster.put(f"{store_paths.STATUS}/job", JobStatus("ENDED", "", 0.0, 4))
    with pytest.raises(InvalidRequestError, match="it has had some: start from scratch"):
        cluster.service.submit(submission(code(guarantee="at-least-once")), NEW)
    cluster.service.submit(submission(code(guarantee="at-least-once"), fresh=True), NEW)
    assert not cluster.spec().agreed


@pytest.mark.parametrize("again", ["submit", "resubmit", "update"])
def test_what_is_history_is_so_of_all_replicas(again: str) -> None:
    cluster = Cluster()
    cluster.job(phase="RUNNING" if again == "update" else "ENDED", revision=4, agreed=True, k=1)
    cluster.put(f"{store_paths.STATUS}/job", replace(cluster.status(), differed=6.0, unsafe_since=5.0))
    cluster.member(1, revision=7)
    cluster.put(f"{store_paths.STATUS}/jobs", JobStatus("ENDED", "another job", 0.0, 99))
    if again == "submit":
        cluster.service.submit(submission(fresh=True), NEW)
    elif again == "resubmit":
        cluster.service.resubmit("job", fresh=True)
    else:
        cluster.service.update("job", submission(), NEW)
    assert cluster.spec().after == 7
    if again != "update":
        assert cluster.spec().forget == 7
        status = cluster.status()
        assert (status.phase, status.revision, status.safety, status.unsafe_since) == ("PENDING", 7, "", 0.0)
        assert status.differed == 6.0, "people were told of that"


def test_to_begin_from_scratch_with_one_replica_is_to_agree_with_nobody() -> None:
    cluster = Cluster()
    cluster.job(phase="ENDED", agreed=True, k=0)
    cluster.service.resubmit("job", fresh=True)
    assert not cluster.spec().agreed
    cluster.job("two", phase="ENDED", agreed=True, k=1)
    cluster.service.resubmit("two", fresh=True)
    assert cluster.spec("two").agreed


def test_k_changes_while_the_job_runs() -> None:
    cluster = Cluster()
    cluster.job()
    done = cluster.service.replicate("job", {"k": 2})
    assert done == {"name": "job", "generation": 1, "reason": "its replication was changed: k=2"}
    assert _replication(cluster) == (2, "copy", "first", False, True)
    cluster.service.replicate("job", {"publisher": "primary", "recovery": "next-window"})
    assert _replication(cluster) == (2, "next-window", "primary", False, True)
    cluster.service.replicate("job", {"k": 0, "publisher": "first"})
    assert _replication(cluster) == (0, "next-window", "first", False, True)
    cluster.service.replicate("job", {"warm_standby": True})
    assert _replication(cluster) == (0, "next-window", "first", True, True)
    with pytest.raises(InvalidRequestError, match="nothing to change"):
        cluster.service.replicate("job", {"warm_standby": True})


def test_more_replicas_than_nodes_are_refused_and_fewer_always_granted() -> None:
    cluster = Cluster(nodes=2)
    cluster.job(k=2, agreed=True)
    with pytest.raises(RefusedError, match="k=3 needs 4 nodes"):
        cluster.service.replicate("job", {"k": 3})
    cluster.store.delete(f"{store_paths.NODES}/n1")
    cluster.look()
    cluster.service.replicate("job", {"k": 1})
    assert cluster.spec().settings.replicas.k == 1, (
        "there is one node only, but no more is asked for than before"
    )
    with pytest.raises(RefusedError, match="k=2 needs 3 nodes"):
        cluster.service.replicate("job", {"k": 2})


@pytest.mark.parametrize(
    ("job", "changes", "reason"),
    [
        ({"data_location": "node"}, {"k": 1}, "keeps its data with its node"),
        ({"structure": code(guarantee="at-most-once")}, {"k": 1}, "is at-most-once"),
        ({"k": 1, "agreed": True}, {"warm_standby": True}, "warm_standby is for k=0"),
        ({"k": 1, "agreed": True, "publisher": "primary"}, {"k": 0}, "needs other replicas"),
        ({}, {"colour": "red"}, "replicas.colour: there is no such setting"),
        ({"structure": code(vertices=[SOCKET])}, {"k": 1}, "several replicas cannot read"),
        ({"k": 1, "structure": code(vertices=[PLAIN])}, {"recovery": "next-window"}, "windows of time"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    job: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    cluster = Cluster()
    before = cluster.job(**job)
    with pytest.raises(InvalidRequestError, match=reason):
        cluster.service.replicate("job", changes)
    assert cluster.spec() == before


def test_what_does_not_run_cannot_be_replicated() -> None:
    cluster = Cluster()
    cluster.job(phase="ENDED")
    with pytest.raises(RefusedError, match="submit it again first"):
        cluster.service.replicate("job", {"k": 1})
    with pytest.raises(NotFoundError):
        cluster.service.replicate("job~1", {"k": 1})


@pytest.mark.parametrize(
    ("now", "new", "over", "k"),
    [
        (1, code(k=1), {}, 1),
        (2, code(k=1), {}, 2),  # the user has once said so, and the code says what it said before
        (1, code(k=0), {}, 0),
        (2, code(k=0), {"k": 2}, 2),
        (1, code(k=1), {"k": 2}, 2),
    ],
)
def test_an_update_brings_what_the_new_code_says_otherwise(
    now: int, new: dict[str, Any], over: dict[str, Any], k: int
) -> None:
    cluster = Cluster()
    cluster.job(k=now, agreed=True, structure=code(k=1))
    cluster.service.update("job", submission(new, **over), NEW)
    spec = cluster.spec()
    assert (spec.settings.replicas.k, spec.agreed, spec.bundle, spec.generation) == (k, True, NEW, 2)


def test_an_update_with_the_same_code_changes_the_replicas_alone() -> None:
    cluster = Cluster()
    before = cluster.job()
    assert "spec" in cluster.service.update("job", submission(), before.bundle)
    cluster.service.update("job", submission(k=1), before.bundle)
    assert (cluster.spec().settings.replicas.k, cluster.spec().generation) == (1, 1)
    with pytest.raises(RefusedError, match="needs 6 nodes"):
        cluster.service.update("job", submission(k=5), NEW)


def test_replicas_share_no_node_wherever_the_job_is_moved() -> None:
    cluster = Cluster(nodes=4)
    cluster.job(k=1, agreed=True)
    cluster.job("other")
    cluster.member(0)
    cluster.member(1)
    cluster.member(0, "n3", job="other")
    with pytest.raises(RefusedError, match="replica 1 of job 'job' is on n1"):
        cluster.service.migrate("job", "n1")
    cluster.service.migrate("job", "n3")
    assert cluster.spec().driver == "n3"


def test_a_job_is_not_scaled_to_fewer_nodes_than_its_replicas_need() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    with pytest.raises(RefusedError, match="needs 2 nodes"):
        cluster.service.scale("job", {}, ("n1",))
    with pytest.raises(RefusedError, match="needs 2 nodes"):
        cluster.service.scale("job", {"cores": 5}, None)
    cluster.service.scale("job", {"executors": 1}, ("n1", "n2"))
    assert cluster.spec().settings.placement.nodes == ("n1", "n2")


def test_clearing_a_failed_job_starts_all_its_replicas() -> None:
    cluster = Cluster()
    cluster.job(phase="FAILED", revision=3, k=1, agreed=True)
    cluster.put(f"{store_paths.ALARMS}/job-failed.job", Alarm("job-failed.job", "job-failed", "job", "", 1.0))
    cluster.service.clear("job-failed.job")
    assert (cluster.spec().after, cluster.status().phase) == (3, "PENDING")
    assert cluster.service.alarms() == []


def test_a_job_with_replicas_is_shown_as_one() -> None:
    cluster = Cluster()
    cluster.job(k=2, agreed=True)
    cluster.put(f"{store_paths.STATUS}/job", JobStatus("RUNNING", "", 0.0, 3, "recovering (40% caught up)"))
    cluster.member(0, joined=joined(4, 40))
    cluster.member(1, joined=joined(39, 40, differs=True), records=77)
    cluster.fail(0, 2, revision=1)
    cluster.fail(1, 1, revision=2)
    [summary] = cluster.service.jobs()
    assert (summary["name"], summary["k"], summary["safety"]) == ("job", 2, "recovering (40% caught up)")
    assert (summary["node"], summary["progress"]["records_in"]) == ("n1", 77), "number 0 is not in step"
    assert summary["failures"] == 3
    job = cluster.service.job("job")
    assert [worker["job"] for worker in job["workers"]] == ["job", "job~1"]
    first, second, third = job["replicas"]
    assert (first["number"], first["node"], first["phase"], first["batch"]) == (0, "n0", "running", 4)
    assert (first["behind"], first["in_step"], first["caught_up"]) == (36, False, 0.1)
    assert (second["behind"], second["in_step"], second["differed"]["batch"]) == (1, True, 3)
    assert (second["reason"], second["revision"], second["failures"]) == ("it fits n1", 2, 1)
    assert (third["node"], third["phase"], third["reason"]) == ("", "missing", "")
    assert (third["batch"], third["behind"]) == (None, None)
    assert cluster.service.cluster()["jobs"] == 1


def test_the_first_replica_that_is_in_step_speaks_for_the_job() -> None:
    cluster = Cluster()
    cluster.job(k=2, agreed=True)
    cluster.member(0, joined=joined(10, 11), records=1)
    cluster.member(1, joined=joined(11, 11), records=2)
    cluster.member(2, joined=joined(11, 11), phase="starting", records=3)
    assert cluster.service.jobs()[0]["progress"]["records_in"] == 1


def test_a_job_without_replicas_has_none_to_show() -> None:
    cluster = Cluster()
    cluster.job()
    cluster.member(0)
    job = cluster.service.job("job")
    assert (job["replicas"], job["k"], job["safety"], job["node"]) == ([], 0, "", "n0")


def test_replicas_that_have_not_gone_yet_are_shown() -> None:
    cluster = Cluster()
    cluster.job(k=0, agreed=True)
    cluster.member(0, joined=joined(9, 9))
    cluster.member(1, phase="stopping", joined=joined(8, 9))
    assert [replica["phase"] for replica in cluster.service.job("job")["replicas"]] == ["running", "stopping"]


def test_a_replica_that_shall_be_started_is_assigned_and_one_may_lack_state() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.member(0, phase="")
    cluster.member(1, joined=joined(9, 9, whole=False))
    first, second = cluster.service.job("job")["replicas"]
    assert (first["phase"], first["node"], first["whole"]) == ("assigned", "n0", True)
    assert (second["in_step"], second["whole"]) == (False, False)
    cluster.member(0, phase="starting", joined=ReplicaReport())
    assert cluster.service.job("job")["replicas"][0]["behind"] is None, "nobody knows yet"


def test_the_replica_that_was_through_says_how_the_job_ended() -> None:
    cluster = Cluster()
    cluster.job(phase="ENDED", k=2, agreed=True, after=3)
    cluster.end(0, "stopped", revision=4, at=9.0)
    cluster.end(1, "drained", revision=5, at=8.0)
    cluster.end(2, "drained", revision=2, at=99.0)
    assert cluster.service.job("job")["result"]["reason"] == "by 1", "that of 2 is of a run before"


def test_a_replica_that_is_wanted_no_more_says_nothing_of_the_job() -> None:
    cluster = Cluster()
    cluster.job(k=0, agreed=True)
    cluster.member(0, joined=joined(9, 9))
    cluster.end(1, "stopped", revision=2, at=9.0)
    assert cluster.service.job("job")["result"] is None


def test_what_became_of_a_replica_of_the_same_name_is_history() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.fail(1, 4, revision=2)
    cluster.member(1, revision=5, after=4)
    assert cluster.service.job("job")["replicas"][1]["failures"] == 0
    cluster.fail(1, 1, revision=5)
    assert cluster.service.jobs()[0]["failures"] == 1


def test_nodes_have_jobs_and_not_replicas() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.member(0, "n0")
    cluster.member(1, "n1")
    cluster.member(2, "n1")
    assert [node["jobs"] for node in cluster.service.nodes()] == [["job"], ["job"], []]


def test_lines_of_the_log_have_the_replica_they_are_about() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.job("plain")
    cluster.logs.lines = [{"job": "job", "event": "a"}, {"job": "job~1", "event": "b"}]
    lines = cluster.service.logs("job", "", 10)["lines"]
    assert [(line["job"], line["replica"]) for line in lines] == [("job", 0), ("job", 1)]
    cluster.logs.lines = [{"job": "plain", "event": "c"}]
    assert cluster.service.logs("plain", "", 10)["lines"] == [{"job": "plain", "event": "c"}]


def test_names_of_replicas_are_nobodys_business() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.member(1)
    for ask in (cluster.service.job, lambda name: cluster.service.kill(name, drain=False)):
        with pytest.raises(NotFoundError):
            ask("job~1")
    with pytest.raises(NotFoundError):
        cluster.service.submit(submission(code("job~1")), NEW)
