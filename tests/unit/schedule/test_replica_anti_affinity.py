"""Replicas of a job share no node, and no rack where there are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.cluster_state import ClusterState, ReservedResources
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.cluster.worker_documents import WorkerInfo
from penstock.job_settings import Resources
from penstock.replicas.decisions.replica_set import replica_specs
from penstock.schedule.job_placer import JobPlacer
from penstock.schedule.placement_explanation import explain_placement
from penstock.schedule.placement_strategies import builtin_strategy
from penstock.schedule.rebalance_plan import rebalance
from support.settings import make_assignment, make_spec, make_state, replace

GIB = 1 << 30


def _spec(k: int = 1, cores: int = 1, executors: int = 0, **changes: Any) -> JobSpec:
    asked = Resources(cores, GIB, executors, executor_cores=1, executor_memory=GIB)
    return make_spec("job", "b", "job.py", k=k, resources=asked, **changes)


def _nodes(racks: str, cores: int = 8) -> dict[str, NodeInfo]:
    """One node for each letter, which names its rack."""
    return {
        f"n{number}": NodeInfo(f"n{number}", "", cores, 64 * GIB, rack=rack)
        for number, rack in enumerate(racks, 1)
    }


def _assignment(name: str, node: str, *executors: str) -> Assignment:
    slots = tuple(ExecutorSlot(number, on, 1, GIB) for number, on in enumerate(executors, 1))
    return make_assignment(name, 1, 1, 1, "b", "job.py", node, 1, GIB, executors=slots)


def _all(spec: JobSpec) -> list[PlacementRequest]:
    missing = tuple(range(1, spec.settings.resources.executors + 1))
    replicas = replica_specs(spec)
    return [PlacementRequest(one.spec, missing=missing, replica=one.id.index) for one in replicas]


def _place(
    requests: Sequence[PlacementRequest], actual: ClusterState, placer: JobPlacer | None = None
) -> dict[str, PlacementResult]:
    answers = (placer or JobPlacer()).place(requests, actual)
    return {str(replica): placed for replica, placed in answers.items()}


def _used(placed: PlacementResult) -> set[str]:
    return {node for node in (placed.node, *placed.executors.values()) if node is not None}


def test_replicas_that_are_placed_together_go_to_different_nodes() -> None:
    found = _place(_all(_spec(k=2)), ClusterState(nodes=_nodes("aaa")))
    assert sorted(placed.node or "" for placed in found.values()) == ["n1", "n2", "n3"]


def test_one_that_finds_no_node_of_its_own_is_told_why() -> None:
    found = _place(_all(_spec(k=2)), ClusterState(nodes=_nodes("aa")))
    assert [placed.node is not None for placed in found.values()] == [True, True, False]
    assert "reserved for another replica of the job" in found["job~2"].told


def test_one_keeps_off_those_that_stand() -> None:
    standing = {"job~1": _assignment("job~1", "n2", "n3")}
    actual = make_state(nodes=_nodes("aaaa"), assignments=standing)
    [placed] = JobPlacer().place([PlacementRequest(_spec(), avoid=frozenset({"n1"}))], actual).values()
    assert placed.node == "n4"


def test_what_a_document_with_the_name_of_no_replica_takes_is_of_no_replica() -> None:
    room = ReservedResources("job~later", "driver", "n1", 1, GIB)
    unreadable = {"job": "/assignments/job~later: no such name"}
    actual = ClusterState(nodes=_nodes("aa"), unreadable=unreadable, unreadable_room=(room,))
    found = _place(_all(_spec()), actual)
    assert sorted(placed.node or "" for placed in found.values()) == ["n1", "n2"]


def test_one_keeps_off_the_node_that_another_stays_on_while_both_are_placed() -> None:
    standing = {"job~1": _assignment("job~1", "n1")}
    spec = _spec()
    second = PlacementRequest(spec, standing["job~1"], stay="n1", replica=1)
    requests = [PlacementRequest(spec), second]
    found = _place(requests, make_state(nodes=_nodes("aa"), assignments=standing))
    assert (found["job"].node, found["job~1"].node) == ("n2", "n1")


def test_one_keeps_off_the_node_that_another_could_not_leave() -> None:
    standing = {"job": _assignment("job", "n1"), "job~2": _assignment("job~2", "n2")}
    spec = _spec(k=2)
    leaves = PlacementRequest(spec, standing["job"], avoid=frozenset({"n1"}))
    found = _place(
        [leaves, PlacementRequest(spec, replica=1)], make_state(nodes=_nodes("aa"), assignments=standing)
    )
    assert (found["job"].node, found["job~1"].node) == (None, None)


@pytest.mark.parametrize(
    ("racks", "k", "racks_used"),
    [
        ("aaab", 1, {"a": 1, "b": 1}),
        ("aabbcc", 2, {"a": 1, "b": 1, "c": 1}),
        ("aabb", 2, {"a": (1, 2), "b": (1, 2)}),
        ("aaaa", 1, {"a": 2}),
    ],
)
def test_replicas_are_in_different_racks_while_there_are_enough(
    racks: str, k: int, racks_used: dict[str, Any]
) -> None:
    nodes = _nodes(racks)
    found = _place(_all(_spec(k=k)), ClusterState(nodes=nodes))
    used = [nodes[placed.node or ""].rack for placed in found.values()]
    assert len({placed.node for placed in found.values()}) == k + 1
    for rack, count in racks_used.items():
        assert used.count(rack) in (count if isinstance(count, tuple) else (count,))


def test_a_rack_without_room_is_as_good_as_none() -> None:
    nodes = _nodes("aab", cores=1)
    other = _assignment("other", "n3")
    found = _place(_all(_spec()), make_state(nodes=nodes, assignments={"other": other}))
    assert sorted(placed.node or "" for placed in found.values()) == ["n1", "n2"]


def test_where_the_user_moved_it_counts_more_than_its_rack() -> None:
    standing = {"job~1": _assignment("job~1", "n1")}
    actual = make_state(nodes=_nodes("aab"), assignments=standing)
    assert _place([PlacementRequest(_spec(), prefer="n2")], actual)["job"].node == "n2"
    assert _place([PlacementRequest(_spec(), prefer="n1")], actual)["job"].node == "n3"


def test_executors_leave_nodes_for_the_other_replicas() -> None:
    found = _place(_all(_spec(k=1, executors=4)), ClusterState(nodes=_nodes("aaaa", cores=4)))
    first, second = (_used(placed) for placed in found.values())
    assert len(first) == len(second) == 2
    assert not first & second
    assert all(len(placed.executors) == 4 for placed in found.values())


def test_executors_that_are_placed_anew_keep_off_the_other_replica() -> None:
    standing = {"job": _assignment("job", "n1"), "job~1": _assignment("job~1", "n2", "n2")}
    actual = make_state(nodes=_nodes("aaa", cores=2), assignments=standing)
    request = PlacementRequest(_spec(executors=1), standing["job"], driver=False, missing=(1,))
    assert _place([request], actual)["job"].executors == {1: "n1"}


@given(
    racks=st.text("ab", min_size=1, max_size=6),
    k=st.integers(0, 3),
    executors=st.integers(0, 3),
    cores=st.integers(1, 4),
    strategy=st.sampled_from(["balanced", "packed", "traffic"]),
    gone=st.integers(0, 3),
)
def test_replicas_never_share_a_node(
    racks: str, k: int, executors: int, cores: int, strategy: str, gone: int
) -> None:
    nodes = _nodes(racks, cores)
    spec = _spec(k=k, executors=executors, agreed=True)
    placer = JobPlacer(lambda _: (strategy, builtin_strategy(strategy)))
    found = _place(_all(spec), ClusterState(nodes=nodes), placer)
    if executors:
        assert all(placed.executors for placed in found.values() if placed.node is not None)
    else:
        assert sum(placed.node is not None for placed in found.values()) == min(k + 1, len(nodes))
    standing = {
        name: _assignment(name, placed.node, *placed.executors.values())
        for name, placed in found.items()
        if placed.node is not None
    }
    left = {name: node for name, node in nodes.items() if name != f"n{gone}"}
    requests = [
        request
        for request in _all(spec)
        if (before := standing.get(str(request.id))) is None or before.node not in left
    ]
    again = _place(requests, make_state(nodes=left, assignments=standing), placer)
    names = {str(request.id) for request in requests}
    used = [_used(placed) for placed in again.values()]
    used += [
        {one.node, *(slot.node for slot in one.executors)}
        for name, one in standing.items()
        if name not in names
    ]
    assert sum(map(len, used)) == len(set().union(*used))


def _running(spec: JobSpec, *assignments: Assignment, racks: str = "aaa") -> ClusterState:
    workers = {
        one.job: (WorkerInfo(one.job, one.revision, 1, one.node, 1, "running", 0.0),) for one in assignments
    }
    return make_state(
        nodes=_nodes(racks, cores=4), assignments={one.job: one for one in assignments}, workers=workers
    )


def test_the_first_replica_moves_to_even_out_and_keeps_off_the_others() -> None:
    spec = _spec(cores=2)
    full = replace(_assignment("full", "n1"), cores=2)
    first, second = (
        replace(_assignment(name, node), cores=2) for name, node in (("job", "n1"), ("job~1", "n2"))
    )
    assert rebalance({"job": spec}, _running(spec, full, first, second))[0].target == "n3"
    assert rebalance({"job": spec}, _running(spec, full, first, second, racks="aa")) == []
    assert rebalance({"job": spec}, _running(spec, full, first, second, racks="abb")) == []


def test_where_replicas_run_is_explained_for_each_of_them() -> None:
    spec = _spec()
    actual = _running(spec, _assignment("job", "n1"), _assignment("job~1", "n2"))
    told = explain_placement({"job": spec}, actual, "job", default="balanced")
    assert told["matrix"] == {"job/driver": "n1", "job~1/driver": "n2"}
    assert "reserved for another replica of the job" in told["rejected"]["job/driver"]["n2"]
    assert "another replica" not in told["rejected"]["job/driver"]["n3"]
