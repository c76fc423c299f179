"""What cannot be as it is wanted is said once, and not tried again and again with new workers."""

from __future__ import annotations

from typing import Any

import pytest
from steady_cluster import GIB, SteadyCluster, assigned_to

from penstock.cluster.assignment_documents import Assignment, BackupStatus, ExecutorSlot, RestoreSource
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_documents import WorkerInfo
from penstock.job_settings import Resources
from penstock.replicas.replica_id import ReplicaId
from support.settings import make_spec, replace

LIVES = 120
EVENTS = 12


def _cluster(nodes: dict[str, tuple[int, int]], *specs: JobSpec) -> SteadyCluster:
    """Return a cluster with nodes of so many cores and GiB, in which the jobs have been placed and run."""
    cluster = SteadyCluster(0)
    infos = {name: NodeInfo(name, "", cores, memory * GIB) for name, (cores, memory) in nodes.items()}
    cluster.all_nodes = infos
    cluster.actual = ClusterState(nodes=infos)
    for spec in specs:
        cluster.specs[spec.name] = spec
        cluster.settle()
    _run_all(cluster)
    return cluster


def _run_all(cluster: SteadyCluster) -> None:
    workers = {
        replica: (WorkerInfo(one.job, one.revision, 1, one.node, 1, "running", 0.0),)
        for replica, one in cluster.actual.assignments.items()
    }
    cluster.actual = replace(cluster.actual, workers=workers)
    cluster.settle()


def _spec(name: str, cores: int = 1, memory: int = 1, **changes: Any) -> JobSpec:
    resources = changes.pop("resources", Resources(cores, memory * GIB, executor_memory=GIB))
    return make_spec(name, "b", "job.py", resources=resources, **changes)


def _change(cluster: SteadyCluster, job: str, **changes: Any) -> None:
    cluster.specs[job] = replace(cluster.specs[job], **changes)
    cluster.settle()


def _assigned(cluster: SteadyCluster, job: str) -> Assignment:
    return cluster.actual.assignments[ReplicaId(job)]


def _reason(cluster: SteadyCluster, job: str) -> str:
    return cluster.actual.statuses[job].reason


@pytest.mark.parametrize("first", range(0, LIVES, 40))
def test_a_leader_comes_to_rest_after_every_event(first: int) -> None:
    for seed in range(first, first + 40):
        SteadyCluster(seed).live(EVENTS)


def test_a_job_whose_executors_fit_nowhere_waits() -> None:
    cluster = _cluster({"n1": (4, 2), "n2": (4, 2)}, _spec("one", memory=2))
    cluster.specs["two"] = _spec("two", resources=Resources(1, 2 * GIB, executors=1, executor_memory=GIB))
    cluster.settle()
    assert ReplicaId("two") not in cluster.actual.assignments
    assert cluster.actual.statuses["two"].phase == "PENDING"
    assert "none of its executors has a node" in _reason(cluster, "two")


def test_a_job_that_can_have_no_executors_runs_on_without() -> None:
    cluster = _cluster({"n1": (4, 2)}, _spec("job", memory=2))
    _change(cluster, "job", resources=Resources(1, 2 * GIB, executors=2, executor_memory=GIB))
    assert (_assigned(cluster, "job").revision, _assigned(cluster, "job").executors) == (1, ())
    assert "it now has executors, and none of its executors has a node" in _reason(cluster, "job")


def test_an_executor_that_has_lost_its_place_makes_no_new_worker() -> None:
    """What counts is what was asked for when the driver was started, not what it has got."""
    asked = Resources(1, GIB, executors=1, executor_memory=GIB)
    cluster = _cluster({"n1": (1, 2), "n2": (1, 2), "n3": (1, 1)}, _spec("job", resources=asked))
    slots = (ExecutorSlot(2, "n2", 1, GIB),)
    standing = replace(_assigned(cluster, "job"), node="n1", executors=slots)
    cluster.actual = replace(cluster.actual, assignments={"job": standing})
    _run_all(cluster)
    _change(cluster, "job", nodes=("n1",))
    assert _assigned(cluster, "job").revision == 1


@pytest.mark.parametrize("node", ["full", "small", "unlabelled"])
def test_a_job_that_was_moved_to_a_node_that_cannot_take_it_stays(node: str) -> None:
    sizes = {"n1": (2, 4), "full": (2, 4), "small": (1, 4), "unlabelled": (2, 4)}
    job = _spec("job", 2, labels={"disk": "ssd"})
    cluster = _cluster(sizes, _spec("other", 2, driver="full"))
    infos = {
        name: replace(info, labels={} if name == "unlabelled" else {"disk": "ssd"})
        for name, info in cluster.all_nodes.items()
    }
    cluster.actual = replace(cluster.actual, nodes=infos)
    cluster.specs["job"] = job
    cluster.settle()
    _run_all(cluster)
    before = _assigned(cluster, "job")
    assert before.node == "n1"
    _change(cluster, "job", driver=node, driver_by="user")
    assert _assigned(cluster, "job") == before
    assert _reason(cluster, "job").startswith(
        f"running on n1; it was moved to {node}, and no node can take it"
    )
    if node == "full":
        del cluster.specs["other"]
        cluster.settle()
        assert _assigned(cluster, "job").node == "full", "it goes there when there is room"


def test_a_job_that_grew_out_of_the_node_it_was_moved_to_goes_elsewhere_once() -> None:
    cluster = _cluster({"n1": (4, 4), "n2": (2, 4)}, _spec("job", driver="n2", driver_by="rebalance"))
    assert _assigned(cluster, "job").node == "n2"
    _change(cluster, "job", resources=Resources(3, GIB))
    assert (_assigned(cluster, "job").node, _assigned(cluster, "job").revision) == ("n1", 2)
    _run_all(cluster)
    assert "it was moved to n2, and no node can take it" in _reason(cluster, "job")


def test_jobs_on_full_nodes_change_places_when_both_were_moved() -> None:
    sizes = {"n1": (2, 4), "n2": (2, 4)}
    cluster = _cluster(sizes, _spec("a", 2, driver="n1"), _spec("b", 2, driver="n2"))
    _change(cluster, "a", driver="n2")
    assert _assigned(cluster, "a").revision == 1
    _change(cluster, "b", driver="n1")
    assert [(_assigned(cluster, job).node, _assigned(cluster, job).revision) for job in ("a", "b")] == [
        ("n2", 2),
        ("n1", 2),
    ]


def test_a_late_report_of_where_data_is_sends_a_job_there_once() -> None:
    """It was restored elsewhere from an older copy: what went on meanwhile is newer."""
    cluster = _cluster({"n1": (2, 4), "n2": (2, 4), "n3": (2, 4)}, _spec("job", data_location="node"))
    restored = replace(_assigned(cluster, "job"), node="n2", revision=5, restore=RestoreSource("n3", "", 2))
    cluster.actual = replace(cluster.actual, assignments={"job": restored}, workers={})
    cluster.actual = replace(cluster.actual, kept={"job": BackupStatus("job", "n1", 4, 1, "n3")})
    cluster.settle()
    found = _assigned(cluster, "job")
    assert (found.node, found.restore, found.revision) == ("n1", None, 6)


def test_a_job_that_keeps_its_data_does_not_follow_a_move() -> None:
    cluster = _cluster({"n1": (2, 4), "n2": (2, 4)}, _spec("job", data_location="node"))
    before = _assigned(cluster, "job")
    _change(cluster, "job", driver="n2" if before.node == "n1" else "n1")
    assert _assigned(cluster, "job") == before


def test_a_job_with_data_is_not_restarted_for_nodes_that_it_may_not_leave_for() -> None:
    cluster = _cluster({"n1": (2, 4), "n2": (2, 4)}, _spec("job", data_location="node"))
    before = _assigned(cluster, "job")
    _change(cluster, "job", nodes=("n2",) if before.node == "n1" else ("n1",))
    assert _assigned(cluster, "job") == before
    assert "allow that node" in _reason(cluster, "job")


@pytest.mark.parametrize(
    "change", [{"resources": Resources(9, GIB)}, {"driver": "n2"}, {"nodes": ("n2",)}, {"generation": 2}]
)
def test_a_drain_ends_though_another_change_cannot_be_placed(change: dict[str, Any]) -> None:
    cluster = _cluster({"n1": (2, 4), "n2": (1, 1)}, _spec("job", 2, 4))
    if "generation" in change:
        smaller = replace(cluster.all_nodes["n1"], cores=1)
        cluster.actual = replace(cluster.actual, nodes={**cluster.all_nodes, "n1": smaller})
    _change(cluster, "job", **change)
    assert _assigned(cluster, "job").revision == 1
    _change(cluster, "job", wanted="ended", drain=True)
    assert (_assigned(cluster, "job").revision, _assigned(cluster, "job").settings.until) == (1, "drained")
    assert cluster.actual.statuses["job"].phase == "ENDING"


def test_executors_of_a_lost_driver_leave_their_room_to_others() -> None:
    asked = Resources(2, GIB, executors=1, executor_memory=GIB)
    wide = _spec("wide", resources=asked, driver="n2")
    cluster = _cluster({"n1": (2, 4), "n2": (2, 4)}, wide)
    assert [slot.node for slot in _assigned(cluster, "wide").executors] == ["n1"]
    _lose(cluster, "n2")
    assert ReplicaId("wide") not in cluster.actual.assignments
    cluster.specs["other"] = _spec("other", 2)
    cluster.settle()
    assert _assigned(cluster, "other").node == "n1"
    assert "no node can take it" in _reason(cluster, "wide")
    cluster.all_nodes["n3"] = NodeInfo("n3", "", 4, 4 * GIB)
    cluster.actual = replace(cluster.actual, nodes=dict(cluster.all_nodes))
    cluster.settle()
    assert (_assigned(cluster, "wide").revision, len(_assigned(cluster, "wide").executors)) == (2, 1)


def test_room_that_one_replica_yields_to_another_is_not_given_away_twice() -> None:
    """A lost replica could be moved in the decision, and stayed in its assignment."""
    asked = Resources(2, GIB, executors=2, executor_memory=GIB)
    cluster = _cluster({"n1": (2, 4), "n2": (2, 4), "n3": (2, 4), "n4": (4, 4)})
    cluster.specs["pair"] = _spec("pair", resources=asked, warm_standby=True, agreed=True)
    cluster.settle()
    _run_all(cluster)
    _lose(cluster, *(one.node for one in assigned_to(cluster, "pair")))
    small = Resources(1, GIB, executors=1, executor_memory=GIB)
    cluster.specs["other"] = _spec("other", resources=small)
    cluster.settle()  # Raises where a node gets more than it can take.
    assert cluster.actual.statuses["other"].phase == "STARTING"


def _lose(cluster: SteadyCluster, *names: str) -> None:
    """Have nodes and their workers be gone for good."""
    nodes = {name: node for name, node in cluster.actual.nodes.items() if name not in names}
    workers = {
        job: tuple(one for one in found if one.node not in names)
        for job, found in cluster.actual.workers.items()
    }
    cluster.actual = replace(cluster.actual, nodes=nodes, workers=workers)
    cluster._miss()
    cluster.now += cluster.rules.node_grace
    cluster.settle()
