"""People are told of jobs that lack a node for long."""

from __future__ import annotations

from typing import Any

from penstock.cluster.alarms import lacking, shortage_alarms, shortage_since
from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.cluster_state import ClusterState, Rules
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus
from penstock.cluster.leader_actions import Action, Clear, Raise
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import WorkerInfo
from penstock.job_settings import Resources
from penstock.schedule.job_placer import JobPlacer
from support.settings import make_assignment, make_spec, replace

NOW = 10_000.0
RULES = Rules(room_grace=300.0)
NODES = {"n1": NodeInfo("n1", "", 4, 8 << 30)}
JOB = make_spec("job", "a" * 64, "job.py")


def _actual(phase: str, **changes: Any) -> ClusterState:
    status = JobStatus(phase, "no node can take it: n1: 8 cores asked for", NOW - 1000, 1)
    return replace(ClusterState(nodes=NODES, statuses={"job": status}), **changes)


def _assigned(name: str = "job", node: str = "n1", slots: int = 0) -> Assignment:
    executors = tuple(ExecutorSlot(number, node, 1, 1) for number in range(slots))
    return make_assignment(name, 1, 1, 1, JOB.bundle, JOB.entry, node, 1, 1, executors)


def _alarms(spec: JobSpec, actual: ClusterState, seconds: float) -> list[Action]:
    return shortage_alarms({"job": spec}, replace(actual, shortage_since={"job": NOW - seconds}), NOW, RULES)


def test_a_job_that_stays_pending_raises_an_alarm_with_the_reason() -> None:
    actual = _actual("PENDING")
    assert _alarms(JOB, actual, 299.0) == []
    [raised] = _alarms(JOB, actual, 300.0)
    assert isinstance(raised, Raise)
    alarm = raised.alarm
    assert (alarm.id, alarm.since, alarm.evidence) == ("no-room.job", NOW - 300, {"lacking": ["driver"]})
    assert "8 cores asked for" in alarm.reason
    assert _alarms(JOB, replace(actual, alarms={alarm.id: alarm}), 400.0) == []


def test_a_leader_decides_it_together_with_all_else() -> None:
    large = replace(JOB, resources=Resources(cores=8))
    known = replace(_actual("PENDING"), shortage_since={"job": NOW - 300})
    actions = reconcile({"job": large}, known, NOW, epoch=1, placer=JobPlacer(), rules=RULES)
    assert [action.alarm.kind for action in actions if isinstance(action, Raise)] == ["no-room"]


def test_replicas_that_never_had_a_node_are_told_of() -> None:
    pair = replace(JOB, k=1, agreed=True)
    actual = _actual("RUNNING", assignments={"job": _assigned()})
    assert lacking({"job": pair}, actual) == {"job": ("replica 1",)}
    assert [type(action) for action in _alarms(pair, actual, 300.0)] == [Raise]
    both = {"job": _assigned(), "job~1": _assigned("job~1", "n2")}
    assert lacking({"job": pair}, replace(actual, assignments=both)) == {}
    gone = replace(actual, assignments=both, absent_since={"n2": NOW - 400})
    assert lacking({"job": pair}, gone) == {"job": ("replica 1",)}
    worker = WorkerInfo("job~1", 1, 1, "n2", 1, "running", NOW)
    assert lacking({"job": pair}, replace(gone, workers={"job~1": (worker,)})) == {}, "it runs on"


def test_executors_without_a_node_are_told_of() -> None:
    wide = replace(JOB, resources=Resources(executors=3))
    actual = _actual("RUNNING", assignments={"job": _assigned(slots=1)})
    assert lacking({"job": wide}, actual) == {"job": ("2 of 3 executors",)}


def test_the_alarm_goes_when_all_have_a_node_or_the_job_is_over() -> None:
    known = {"no-room.job": Alarm("no-room.job", "no-room", "job", "", 1.0, {"lacking": ["driver"]})}
    cleared = [Clear("no-room.job", "all parts of the job have a node")]
    runs = _actual("RUNNING", assignments={"job": _assigned()}, alarms=known)
    assert _alarms(JOB, runs, 0.0) == cleared
    assert _alarms(JOB, _actual("ENDED", alarms=known), 0.0) == cleared
    assert shortage_alarms({}, ClusterState(alarms=known), NOW, RULES) == cleared
    assert _alarms(JOB, _actual("PENDING", alarms=known), 0.0) == [], "another leader has not counted yet"


def test_it_is_counted_from_when_a_job_began_to_wait() -> None:
    pending = _actual("PENDING")
    assert shortage_since({}, {"job": JOB}, pending, NOW) == {"job": NOW - 1000}
    assert shortage_since({"job": NOW - 50}, {"job": JOB}, pending, NOW) == {"job": NOW - 50}
    wide = replace(JOB, resources=Resources(executors=1))
    assert shortage_since({}, {"job": wide}, _actual("RUNNING", assignments={"job": _assigned()}), NOW) == {
        "job": NOW
    }


def test_an_executor_whose_node_is_lost_has_no_node_though_its_place_is_kept() -> None:
    spec = replace(JOB, resources=Resources(executors=2))
    slots = (ExecutorSlot(1, "n1", 1, 1), ExecutorSlot(2, "n2", 1, 1))
    held = _actual("RUNNING", assignments={"job": replace(_assigned(), executors=slots)})
    assert lacking({"job": spec}, held) == {}
    lost = replace(held, absent_since={"n2": NOW - 900})
    assert lacking({"job": spec}, lost) == {"job": ("1 of 2 executors",)}


def test_a_job_that_is_to_be_drained_and_waits_for_a_node_is_told_of() -> None:
    draining = replace(JOB, wanted="ended", drain=True)
    assert lacking({"job": draining}, _actual("PENDING")) == {"job": ("driver",)}
    assert lacking({"job": replace(draining, drain=False)}, _actual("PENDING")) == {}
