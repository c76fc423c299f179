"""Assignments that follow each other for the same request back off, whoever leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from steady_cluster import GIB, SteadyCluster

from penstock.cluster.alarms import alarm_id
from penstock.cluster.assignment_backoff import ASSIGNED_TOO_OFTEN
from penstock.cluster.assignment_documents import Assignment, BackupStatus
from penstock.cluster.cluster_state import ClusterState, Rules
from penstock.cluster.job_documents import AssignmentCount, JobStatus
from penstock.cluster.leader_actions import Assign
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.placement_request import PlacementRequest, PlacementResult, Placer
from penstock.cluster.reconcile import reconcile
from penstock.job_settings import Resources
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from support.settings import make_spec, replace

NODES = {name: NodeInfo(name, "", 4, 8 * GIB) for name in ("n1", "n2")}
SPEC = make_spec("job", "b", "job.py", resources=Resources(1, GIB), driver="n2")
RULES = Rules(free_repeats=3, first_wait=1.0, longest_wait=8.0, calm_after=100.0)


class Contradicting:
    """A placer that never puts a job where it is wanted: what it decides is wrong in the next step."""

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        return {request.id: PlacementResult("n1") for request in requests}


class NoRoom:
    """A placer that has no node for anything."""

    def place(
        self, requests: Sequence[PlacementRequest], actual: ClusterState
    ) -> Mapping[ReplicaId, PlacementResult]:
        return {request.id: PlacementResult(told="no node can take it") for request in requests}


def _cluster() -> SteadyCluster:
    cluster = SteadyCluster(0, RULES)
    cluster.actual = ClusterState(nodes=NODES)
    cluster.specs["job"] = SPEC
    return cluster


def _steps(cluster: SteadyCluster, seconds: float, every: float = 0.1) -> list[Assignment]:
    """Have a leader decide for a while, and return what it assigned."""
    made: list[Assignment] = []
    until = cluster.now + seconds
    while cluster.now < until:
        cluster.now += every
        actions = reconcile(
            cluster.specs, cluster.actual, cluster.now, epoch=1, placer=Contradicting(), rules=RULES
        )
        for action in actions:
            if isinstance(action, Assign):
                made.append(action.assignment)
            cluster._write(action)
    return made


def test_a_decision_that_contradicts_itself_is_slowed_down_and_told() -> None:
    cluster = _cluster()
    made = _steps(cluster, 30.0)
    waits = [round(later.changed - one.changed, 1) for one, later in pairwise(made)]
    assert waits[:3] == [0.1, 0.1, 0.1], "a few follow each other at once"
    assert waits[3:6] == [1.0, 2.0, 4.0]
    assert set(waits[6:]) == {8.0}
    [alarm] = [one for one in cluster.actual.alarms.values() if one.kind == ASSIGNED_TOO_OFTEN]
    assert (alarm.subject, alarm.evidence["repeats"]) == ("job", 3)
    assert "it was moved to n2" in alarm.reason
    assert "delayed, because it was assigned" in cluster.actual.statuses["job"].reason


def test_a_change_by_the_user_is_not_held_up() -> None:
    cluster = _cluster()
    _steps(cluster, 30.0)
    assert _steps(cluster, 0.5) == []
    cluster.specs["job"] = replace(SPEC, restarts=1)
    assert len(_steps(cluster, 0.5)) > 1


def test_a_lost_node_is_left_at_once_however_often_the_job_was_assigned() -> None:
    cluster = _cluster()
    _steps(cluster, 30.0)
    lost = replace(cluster.actual, nodes={"n2": NODES["n2"]}, absent_since={"n1": 0.0})
    actions = reconcile(cluster.specs, lost, cluster.now, epoch=2, placer=JobPlacer(), rules=RULES)
    [made] = [action.assignment for action in actions if isinstance(action, Assign)]
    assert made.node == "n2"


def test_the_alarm_goes_when_the_job_has_come_to_rest() -> None:
    cluster = _cluster()
    _steps(cluster, 30.0)
    cluster.specs["job"] = replace(SPEC, driver="n1")
    cluster.step()
    assert [one.kind for one in cluster.actual.alarms.values()] == [ASSIGNED_TOO_OFTEN]
    cluster.now += RULES.calm_after
    cluster.settle()
    assert not cluster.actual.alarms


def test_the_alarm_goes_with_its_job() -> None:
    cluster = _cluster()
    _steps(cluster, 30.0)
    del cluster.specs["job"]
    cluster.settle()
    assert not cluster.actual.alarms


def test_a_clock_that_was_set_back_holds_nobody_up() -> None:
    cluster = _cluster()
    _steps(cluster, 30.0)
    cluster.now -= 1000.0
    assert _steps(cluster, 0.2)


def test_executors_that_are_placed_again_and_again_are_held_up_too() -> None:
    class Wandering:
        """Puts the executor on the other node each time."""

        def place(
            self, requests: Sequence[PlacementRequest], actual: ClusterState
        ) -> Mapping[ReplicaId, PlacementResult]:
            [slot] = actual.assignments[ReplicaId("job")].executors
            return {request.id: PlacementResult(None, {1: flip[slot.node]}) for request in requests}

    flip = {"n1": "n2", "n2": "n1"}
    cluster = _cluster()
    asked = Resources(1, GIB, executors=1, executor_memory=GIB)
    cluster.specs["job"] = replace(SPEC, driver="", resources=asked)
    cluster.settle()
    larger = replace(cluster.specs["job"], resources=replace(asked, executor_cores=9))
    cluster.specs["job"] = larger
    made = 0
    for _ in range(50):
        cluster.now += 0.1
        actions = reconcile(
            cluster.specs, cluster.actual, cluster.now, epoch=1, placer=Wandering(), rules=RULES
        )
        for action in actions:
            if isinstance(action, Assign):
                made += 1
                # As if it had not become what was asked for.
                smaller = tuple(replace(slot, cores=1) for slot in action.assignment.executors)
                changed = replace(action.assignment, executors=smaller)
                cluster._write(Assign(changed, action.reason))
            else:
                cluster._write(action)
    assert 3 <= made <= 8
    assert [one.kind for one in cluster.actual.alarms.values()] == [ASSIGNED_TOO_OFTEN]


def test_assignments_that_are_taken_back_in_between_are_counted_on() -> None:
    """A contradiction that goes through no assignment at all must not get past the brake, either."""
    cluster = _cluster()
    cluster.specs["job"] = replace(SPEC, data_location="node", driver="")
    kept = BackupStatus("job", "n2", 1 << 20, 1, "", "")
    made: list[Assignment] = []
    for number in range(400):
        cluster.now += 0.1
        # There is newer data on another node in every second step: the job has to leave, and may come back.
        cluster.actual = replace(cluster.actual, kept={"job": kept} if number % 2 else {})
        placer: Placer = NoRoom() if number % 2 else JobPlacer()
        actions = reconcile(cluster.specs, cluster.actual, cluster.now, epoch=1, placer=placer, rules=RULES)
        for action in actions:
            if isinstance(action, Assign):
                made.append(action.assignment)
            cluster._write(action)
    assert 5 <= len(made) <= 12
    assert alarm_id(ASSIGNED_TOO_OFTEN, "job") in cluster.actual.alarms


@pytest.mark.parametrize("k", [0, 1])
def test_replicas_whose_assignments_are_taken_back_in_between_are_counted_on(k: int) -> None:
    """Their nodes come and go while their executors stay: each replica is counted by itself."""

    class Apart:
        """Puts the driver and the executor of a replica on nodes of their own."""

        def place(
            self, requests: Sequence[PlacementRequest], actual: ClusterState
        ) -> Mapping[ReplicaId, PlacementResult]:
            return {request.id: PlacementResult(*places[str(request.id)]) for request in requests}

    places = {"job": ("n1", {1: "n2"}), "job~1": ("n3", {1: "n4"})}
    nodes = {name: NodeInfo(name, "", 4, 8 * GIB) for name in ("n1", "n2", "n3", "n4")}
    left = {name: node for name, node in nodes.items() if name in ("n2", "n4")}
    cluster = _cluster()
    asked = Resources(1, GIB, executors=1, executor_memory=GIB)
    cluster.specs["job"] = replace(SPEC, k=k, agreed=k > 0, driver="", resources=asked)
    made: dict[ReplicaId, int] = {}
    for number in range(400):
        cluster.now += 0.1
        there = left if number % 2 else nodes
        placer: Placer = NoRoom() if number % 2 else Apart()
        absent = dict.fromkeys(nodes.keys() - there.keys(), 0.0)
        cluster.actual = replace(cluster.actual, nodes=there, absent_since=absent)
        actions = reconcile(cluster.specs, cluster.actual, cluster.now, epoch=1, placer=placer, rules=RULES)
        for action in actions:
            if isinstance(action, Assign):
                made[action.replica] = made.get(action.replica, 0) + 1
            cluster._write(action)
    assert sorted(made) == [ReplicaId("job", index) for index in range(k + 1)]
    assert all(5 <= count <= 12 for count in made.values()), made
    alarm = cluster.actual.alarms[alarm_id(ASSIGNED_TOO_OFTEN, "job")]
    assert alarm.evidence["repeats"] == 3, "the count of one replica"


def test_the_count_of_a_replica_ends_with_its_next_assignment() -> None:
    status = JobStatus("PENDING", "", 0.0, 4, replica_counts={"1": AssignmentCount("x", 9, 999.0)})
    cluster = _cluster()
    cluster.specs["job"] = replace(SPEC, k=1, agreed=True)
    cluster.actual = replace(cluster.actual, statuses={"job": status})
    cluster.settle()
    assert sorted(cluster.actual.assignments) == [ReplicaId("job"), ReplicaId("job", 1)]
    assert cluster.actual.statuses["job"].replica_counts == {}
