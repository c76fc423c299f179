"""The location controller: who keeps copies, who runs the job next, and what is told of it."""

from __future__ import annotations

from typing import Any

from penstock.cluster.assignment_documents import BackupLocation, BackupStatus
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.leader_actions import RemoveBackupLocation, SetBackupLocation
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.worker_documents import WorkerInfo
from penstock.schedule.backup_location.location_controller import LocationSettings, locate, location_inputs
from support.settings import make_assignment, make_spec, make_state, replace

GIB = 1 << 30


def _cluster(jobs: dict[str, str], nodes: int = 3, **more: Any) -> tuple[dict[str, JobSpec], ClusterState]:
    """Jobs that keep their data with the nodes they are on, each with one core of four."""
    specs = {name: make_spec(name, "b", "job.py", data_location="node") for name in jobs}
    assignments = {
        name: make_assignment(name, 1, 1, 1, "b", "job.py", node, 1, GIB, data_location="node")
        for name, node in jobs.items()
    }
    infos = {
        f"n{number}": NodeInfo(f"n{number}", "", 4, 8 * GIB, url=f"http://n{number}", **more)
        for number in range(1, nodes + 1)
    }
    return specs, make_state(nodes=infos, assignments=assignments)


def _told(actual: ClusterState, actions: list[SetBackupLocation | RemoveBackupLocation]) -> ClusterState:
    """Return the cluster in which that has been written."""
    locations = dict(actual.locations)
    for action in actions:
        if isinstance(action, SetBackupLocation):
            locations[action.job] = action.location
        else:
            del locations[action.job]
    return replace(actual, locations=locations)


def test_a_copy_is_on_another_node_which_runs_the_job_next() -> None:
    desired, actual = _cluster({"a": "n1"})
    [told] = locate(desired, actual, 5.0)
    assert isinstance(told, SetBackupLocation)
    found = told.location
    assert found.store == found.redeploy != "n1"
    assert (found.store_url, found.since, found.rate) == (f"http://{found.store}", 5.0, 0.0)
    assert found.reason


def test_only_differences_are_told() -> None:
    desired, actual = _cluster({"a": "n1", "b": "n2"})
    settled = _told(actual, locate(desired, actual, 5.0))
    assert locate(desired, settled, 9.0) == []
    gone = settled.locations["a"].store
    fewer = {name: node for name, node in settled.nodes.items() if name != gone}
    on_rest = {name: one for name, one in settled.assignments.items() if one.node != gone}
    after = locate(desired, replace(settled, nodes=fewer, assignments=on_rest), 10.0)
    assert {told.job for told in after if isinstance(told, SetBackupLocation)} >= {"a"}
    assert all(told.location.store != gone for told in after if isinstance(told, SetBackupLocation))


def test_a_store_that_answers_elsewhere_is_told() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = _told(actual, locate(desired, actual, 5.0))
    store = settled.locations["a"].store
    nodes = {**settled.nodes, store: replace(settled.nodes[store], url="http://elsewhere")}
    [told] = locate(desired, replace(settled, nodes=nodes), 9.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.store_url == "http://elsewhere"


def test_the_location_of_a_job_whose_node_is_gone_stays_until_it_is_used() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = _told(actual, locate(desired, actual, 5.0))
    nodes = {name: node for name, node in settled.nodes.items() if name != "n1"}
    assert locate(desired, replace(settled, nodes=nodes), 9.0) == []


def test_without_another_node_there_is_no_copy() -> None:
    desired, actual = _cluster({"a": "n1"}, nodes=1)
    assert locate(desired, actual, 5.0) == []
    before = BackupLocation("a", "n2", "http://n2", "n2")
    [told] = locate(desired, replace(actual, locations={"a": before}), 5.0)
    assert isinstance(told, RemoveBackupLocation)
    assert "no node can store its backup" in told.reason


def test_the_location_of_a_job_that_is_over_goes_when_its_worker_has() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = replace(_told(actual, locate(desired, actual, 5.0)), assignments={})
    worker = WorkerInfo("a", 1, 1, "n1", 1, "stopping", 0.0)
    assert locate(desired, replace(settled, workers={"a": (worker,)}), 9.0) == []
    assert locate(desired, settled, 9.0) == [RemoveBackupLocation("a", "the job has ended")]


def test_what_other_jobs_leave_decides_who_runs_it_next() -> None:
    desired, actual = _cluster({"a": "n1"})
    full = make_assignment("full", 1, 1, 1, "b", "job.py", "n2", 4, GIB)
    [told] = locate(desired, replace(actual, assignments={**actual.assignments, "full": full}), 5.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.redeploy == "n3"


def test_two_failures_at_once_need_more_room() -> None:
    jobs = {"a": "n1", "b": "n2"}
    desired, actual = _cluster(jobs, nodes=3)
    three = {name: replace(one, cores=3) for name, one in actual.assignments.items()}
    crowded = replace(actual, assignments=three)
    one = locate(desired, crowded, 5.0)
    assert len([told for told in one if isinstance(told, SetBackupLocation)]) == 2, (
        "n3 can take either of them"
    )
    two = locate(desired, crowded, 5.0, LocationSettings(failures=2))
    assert len([told for told in two if isinstance(told, SetBackupLocation)]) < 2, "n3 cannot take both"


def test_how_much_there_is_to_copy_is_what_was_copied() -> None:
    desired, actual = _cluster({"a": "n1"}, bandwidth=10e6)
    # All is on nodes of one link each: what is copied every second must fit through it.
    fast = replace(actual, kept={"a": BackupStatus("a", "n1", 1, 1, "n2", bytes=50_000_000, rate=20e6)})
    assert locate(desired, fast, 5.0) == []
    slow = replace(actual, kept={"a": BackupStatus("a", "n1", 1, 1, "n2", bytes=50_000_000, rate=2e6)})
    assert len(locate(desired, slow, 5.0)) == 1


def test_only_what_matters_is_an_occasion() -> None:
    desired, actual = _cluster({"a": "n1"})
    before = location_inputs(desired, actual)
    [there] = actual.assignments.values()
    moved = replace(actual, assignments={"a": replace(there, node="n2")})
    assert location_inputs(desired, moved) != before
    assert location_inputs(desired, replace(actual, nodes=dict(list(actual.nodes.items())[:2]))) != before
    shared = {"a": replace(desired["a"], data_location="shared")}
    assert location_inputs(shared, actual) == (), "jobs whose data is everywhere need no copies"


def test_a_job_is_redeployed_only_where_its_labels_and_nodes_let_it_run() -> None:
    specs, actual = _cluster({"count": "n1"}, nodes=4)
    labelled = {**actual.nodes, "n3": replace(actual.nodes["n3"], labels={"disk": "fast"})}
    fast = {"count": replace(specs["count"], labels={"disk": "fast"})}
    (told,) = locate(fast, replace(actual, nodes=labelled), 0.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.redeploy == "n3"
    chosen = {"count": replace(specs["count"], nodes=("n1", "n4"))}
    (told,) = locate(chosen, actual, 0.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.redeploy == "n4"
    nowhere = {"count": replace(specs["count"], nodes=("n1",))}
    assert locate(nowhere, actual, 0.0) == []


def _report(*, disk_free: int = 100 * GIB, traffic: float = 0.0) -> NodeReport:
    return NodeReport(0.0, 0.0, 0, GIB, traffic, traffic, disk_free=disk_free)


def _copied(rate: float = 1e6) -> dict[str, BackupStatus]:
    return {"a": BackupStatus("a", "n1", 1, 1, "n2", bytes=50_000_000, rate=rate)}


def test_a_node_without_room_on_its_disk_keeps_no_copy() -> None:
    desired, actual = _cluster({"a": "n1"})
    reports = {name: _report(disk_free=10_000_000 if name == "n2" else 100 * GIB) for name in actual.nodes}
    [told] = locate(desired, replace(actual, reports=reports), 5.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.store == "n3"
    none = {name: _report(disk_free=10_000_000) for name in actual.nodes}
    assert locate(desired, replace(actual, reports=none), 5.0) == []


def test_what_a_copy_takes_of_a_disk_is_there_for_it() -> None:
    desired, actual = _cluster({"a": "n1"}, nodes=2)
    full = replace(actual, reports={"n1": _report(), "n2": _report(disk_free=1_000_000)})
    assert locate(desired, full, 5.0) == []
    [told] = locate(desired, replace(full, kept=_copied()), 5.0)
    assert isinstance(told, SetBackupLocation), "it is there already, and has grown by little"


def test_a_link_that_others_use_is_not_counted_on() -> None:
    desired, actual = _cluster({"a": "n1"}, bandwidth=100e6)
    busy = {name: _report(traffic=95e6 if name == "n2" else 0.0) for name in actual.nodes}
    growing = {"a": BackupStatus("a", "n1", 1, 1, bytes=50_000_000, rate=20e6)}
    [told] = locate(desired, replace(actual, reports=busy, kept=growing), 5.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.store == "n3"
    ours = {name: _report(traffic=95e6 if name in ("n1", "n2") else 0.0) for name in actual.nodes}
    copying = replace(actual, reports=ours, kept=_copied(95e6))
    assert locate(desired, copying, 5.0), "the traffic is that of the copy itself"


def test_what_goes_between_racks_must_fit_through_their_uplinks() -> None:
    desired, actual = _cluster({"a": "n1"}, bandwidth=100e6)
    racks = {"n1": "left", "n2": "right", "n3": "right"}
    narrow = {name: replace(actual.nodes[name], rack=rack, uplink=1e6) for name, rack in racks.items()}
    kept = _copied(5e6)
    assert locate(desired, replace(actual, nodes=narrow, kept=kept), 5.0) == []
    wide = {name: replace(node, uplink=50e6) for name, node in narrow.items()}
    assert len(locate(desired, replace(actual, nodes=wide, kept=kept), 5.0)) == 1


def test_what_nobody_has_said_or_measured_is_told() -> None:
    desired, actual = _cluster({"a": "n1"})
    [told] = locate(desired, actual, 5.0)
    assert isinstance(told, SetBackupLocation)
    assert told.location.assumed == (
        "64 MB of data (not backed up yet); growth of 1 MB/s (not measured yet);"
        f" 125 MB/s of the link of n1, {told.location.store} (--bandwidth); room for it on"
        f" {told.location.store}"
    )
    settled = _told(actual, [told])
    reports = {name: _report() for name in actual.nodes}
    linked = {name: replace(node, bandwidth=100e6) for name, node in actual.nodes.items()}
    known = replace(settled, nodes=linked, reports=reports, kept=_copied())
    [again] = locate(desired, known, 9.0)
    assert isinstance(again, SetBackupLocation)
    assert again.location.assumed == ""
    assert locate(desired, _told(known, [again]), 9.0) == []


def test_what_goes_over_links_from_second_to_second_moves_nothing() -> None:
    desired, actual = _cluster({"a": "n1", "b": "n2"}, bandwidth=100e6)
    # No node can both store and run: rates are set aside.
    kept = {
        job: BackupStatus(job, node, 1, 1, "", bytes=10**9, rate=1e6)
        for job, node in (("a", "n1"), ("b", "n2"))
    }
    settled = replace(actual, kept=kept)
    settled = _told(settled, locate(desired, settled, 5.0))
    for traffic in (1e6, 3e6, 2e6):
        reports = {name: _report(traffic=traffic) for name in actual.nodes}
        told = locate(desired, replace(settled, reports=reports), 9.0)
        settled = _told(replace(settled, reports=reports), told)
        assert traffic == 1e6 or told == []
