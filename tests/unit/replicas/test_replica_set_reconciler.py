"""The leader's decision about jobs with replicas, case by case."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot, ReplicaAssignment
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import Alarm, Code, JobSpec, JobStatus
from penstock.cluster.leader_actions import Action, Assign, Clear, Raise, SetStatus, Unassign, UpdateSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import (
    Difference,
    Failures,
    Progress,
    ReplicaReport,
    Result,
    WorkerInfo,
)
from penstock.job_settings import Resources
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from support.settings import by_replica, make_assignment, make_spec, make_state, replace

T = TypeVar("T")

FIRST, SECOND = ReplicaId("job"), ReplicaId("job", 1)
NOW = 1000.0
GIB = 1 << 30
IN_STEP = ReplicaReport(batch=9, head=10)
BEHIND = ReplicaReport(batch=30, head=100, since=0)


def _nodes(*names: str, racks: str = "") -> dict[str, NodeInfo]:
    return {
        name: NodeInfo(name, "", 4, 8 * GIB, rack=racks[at] if racks else "") for at, name in enumerate(names)
    }


NODES = _nodes("n1", "n2", "n3")


def _spec(**changes: Any) -> JobSpec:
    made = make_spec("job", "a" * 64, "job.py", k=1, agreed=True, resources=Resources(cores=2, memory=GIB))
    return replace(made, **changes)


def _assignment(
    name: str, node: str, revision: int, spec: JobSpec | None = None, runs: bool = True, **changes: Any
) -> Assignment:
    spec = spec or _spec()
    made = make_assignment(
        name,
        1,
        revision,
        spec.generation,
        spec.bundle,
        spec.entry,
        node,
        spec.settings.resources.cores,
        spec.settings.resources.memory,
        membership=ReplicaAssignment(ReplicaId.parse(name).index, runs=runs),
    )
    return replace(made, **changes)


def _worker(
    name: str,
    node: str,
    revision: int,
    joined: ReplicaReport | None = IN_STEP,
    phase: str = "running",
    attempt: int = 1,
) -> WorkerInfo:
    return WorkerInfo(name, revision, attempt, node, 1, phase, NOW, joined=joined)


SAFE = JobStatus("RUNNING", "replica 0: running on n1; replica 1: running on n2", NOW - 100, 2, "k-safe")


def _actual(**changes: Any) -> ClusterState:
    """Two replicas that run."""
    running = make_state(
        nodes=NODES,
        assignments={"job": _assignment("job", "n1", 1), "job~1": _assignment("job~1", "n2", 2)},
        workers={"job": (_worker("job", "n1", 1),), "job~1": (_worker("job~1", "n2", 2),)},
        statuses={"job": SAFE},
    )
    return replace(running, **changes)


def _with_workers(**changes: Any) -> ClusterState:
    """The workers of some replicas are others; names of replicas have no place in Python."""
    named = by_replica({name.replace("_", "~"): workers for name, workers in changes.items()})
    return _actual(workers={**_actual().workers, **named})


def _decide(spec: JobSpec | None, actual: ClusterState, now: float = NOW) -> list[Action]:
    desired = {spec.name: spec} if spec else {}
    return reconcile(desired, actual, now, epoch=7, placer=JobPlacer())


def _all(kind: type[T], actions: list[Action]) -> list[T]:
    return [action for action in actions if isinstance(action, kind)]


def _only(kind: type[T], actions: list[Action]) -> T:
    [found] = _all(kind, actions)
    return found


def _after(actual: ClusterState, actions: list[Action]) -> ClusterState:
    """Return what is the case when a leader has done what it decided."""
    assignments, statuses = dict(actual.assignments), dict(actual.statuses)
    alarms = dict(actual.alarms)
    for action in actions:
        match action:
            case Assign(assignment):
                assignments[assignment.replica] = assignment
            case Unassign(replica):
                del assignments[replica]
            case SetStatus(job, status):
                statuses[job] = status
            case Raise(alarm):
                alarms[alarm.id] = alarm
            case Clear(id):
                del alarms[id]
            case _:
                pass
    return replace(actual, assignments=assignments, statuses=statuses, alarms=alarms)


def test_what_is_as_wanted_is_left_alone() -> None:
    assert _decide(_spec(), _actual()) == []


def test_a_new_job_gets_all_its_replicas_at_once_with_revisions_of_their_own() -> None:
    actions = _decide(_spec(k=2), ClusterState(nodes=NODES))
    assigned = {str(action.replica): action.assignment for action in _all(Assign, actions)}
    assert sorted(assigned) == ["job", "job~1", "job~2"]
    assert sorted(one.revision for one in assigned.values()) == [1, 2, 3]
    assert sorted(one.node for one in assigned.values()) == ["n1", "n2", "n3"]
    assert [one.membership and one.membership.number for one in assigned.values()] == [0, 1, 2]
    status = _only(SetStatus, actions)
    assert (status.job, status.status.phase, status.status.revision) == ("job", "STARTING", 3)
    assert status.status.safety == "degraded (k=0)"
    assert [type(action) for action in actions] == [Assign, Assign, Assign, SetStatus], "in one transaction"


@pytest.mark.parametrize(
    ("spec", "lineage"), [(_spec(), 0), (_spec(fresh=True, forget=4), 4), (_spec(forget=4), 0)]
)
def test_membership_is_what_is_wanted(spec: JobSpec, lineage: int) -> None:
    spec = replace(spec, recovery="next-window", publisher="primary")
    made = _all(Assign, _decide(spec, ClusterState(nodes=NODES)))[1].assignment
    assert made.membership == ReplicaAssignment(1, lineage, runs=True)
    assert made.settings.replicas == spec.settings.replicas


def test_a_job_without_replicas_has_no_members() -> None:
    plain = make_spec("job", "a" * 64, "job.py")
    assigned = _only(Assign, _decide(plain, ClusterState(nodes=NODES))).assignment
    assert (assigned.job, assigned.membership) == ("job", None)


def test_too_few_nodes_leave_a_replica_out_and_say_why() -> None:
    actions = _decide(_spec(), ClusterState(nodes=_nodes("n1")))
    assert [str(action.replica) for action in _all(Assign, actions)] == ["job"]
    reason = _only(SetStatus, actions).status.reason
    assert (
        "replica 1: a replica is wanted, and no node can take it: it is reserved for another replica"
        in reason
    )


def test_a_job_that_gets_replicas_has_a_new_worker_first_and_one_with_replicas_has_not() -> None:
    alone = replace(_assignment("job", "n1", 1), membership=None)
    actual = make_state(
        nodes=NODES,
        assignments={"job": alone},
        workers={"job": (_worker("job", "n1", 1, None),)},
        statuses={"job": JobStatus("RUNNING", "running on n1", NOW, 1)},
    )
    actions = _decide(_spec(), actual)
    assigned = {str(one.replica): one.assignment for one in _all(Assign, actions)}
    assert assigned["job"].reason == "it now has replicas"
    assert (assigned["job"].node, assigned["job"].revision) == ("n1", 2)
    assert (assigned["job~1"].node != "n1", assigned["job~1"].revision) == (True, 3)
    more = _decide(_spec(k=2), _actual())
    assert [str(one.replica) for one in _all(Assign, more)] == ["job~2"]
    assert _only(Assign, more).assignment.revision == 3


@pytest.mark.parametrize("change", [{"recovery": "next-window"}, {"publisher": "primary"}])
def test_how_replicas_work_together_changes_with_new_workers(change: dict[str, str]) -> None:
    assigned = _all(Assign, _decide(_spec(**change), _actual()))
    assert [(str(one.replica), one.assignment.revision) for one in assigned] == [("job", 3), ("job~1", 4)]
    assert [one.assignment.node for one in assigned] == ["n1", "n2"]


def test_fewer_replicas_are_wanted() -> None:
    actions = _decide(_spec(k=0), _actual())
    assert _only(Unassign, actions).replica == SECOND
    assert _all(Assign, actions) == []
    status = _only(SetStatus, actions).status
    assert (status.phase, status.reason, status.safety) == ("RUNNING", "running on n1", "")


def test_what_became_of_a_replica_that_was_wanted_no_more_is_history() -> None:
    old = _actual(
        assignments={"job": _assignment("job", "n1", 1)},
        workers={"job": (_worker("job", "n1", 1),)},
        results={"job~1": Result("job~1", 2, "stopped", "the job was ended", NOW)},
        failures={"job~1": Failures("job~1", 2, 9, "it died", "n2", NOW)},
    )
    actions = _decide(_spec(), old)
    assigned = _only(Assign, actions).assignment
    assert (assigned.job, assigned.revision, assigned.after) == ("job~1", 3, 2)
    assert _all(Unassign, actions) == []
    again = _after(old, actions)
    assert [type(action) for action in _decide(_spec(), again)] == [SetStatus], "no alarm, no new worker"


def test_a_lost_node_takes_one_replica_and_the_job_runs_on() -> None:
    two = _nodes("n2", "n3")
    gone = _actual(nodes=two, workers={"job~1": _actual().workers[SECOND]}, absent_since={"n1": NOW - 4})
    actions = _decide(_spec(), gone)
    assigned = _only(Assign, actions).assignment
    assert (assigned.job, assigned.node, assigned.revision) == ("job", "n3", 3)
    status = _only(SetStatus, actions).status
    assert (status.phase, status.safety, status.unsafe_since) == ("RUNNING", "degraded (k=0)", NOW)
    assert status.reason == "replica 0: node n1 is lost: on n3; replica 1: running on n2"


def test_a_lost_node_in_a_cluster_that_is_too_small_leaves_the_job_degraded() -> None:
    gone = _actual(
        nodes=_nodes("n2"), workers={"job~1": _actual().workers[SECOND]}, absent_since={"n1": NOW - 4}
    )
    actions = _decide(_spec(), gone)
    assert _all(Assign, actions) == []
    assert "replica 0: node n1 is lost, and no node can take it" in _only(SetStatus, actions).status.reason
    back = _after(replace(gone, nodes=_nodes("n2", "n4")), actions)
    assert _only(Assign, _decide(_spec(), back)).assignment.node == "n4"


def test_executors_make_room_for_a_replica_that_has_no_node() -> None:
    asked = Resources(cores=1, memory=GIB, executors=2, executor_cores=1, executor_memory=GIB)
    spec = _spec(resources=asked)
    slots = (ExecutorSlot(1, "n2", 1, GIB), ExecutorSlot(2, "n3", 1, GIB))
    actual = _actual(
        nodes=_nodes("n2", "n3"),
        assignments={
            "job": _assignment("job", "n1", 1, spec, executors=(ExecutorSlot(1, "n1", 1, GIB),)),
            "job~1": _assignment("job~1", "n2", 2, spec, executors=slots),
        },
        workers={"job~1": _actual().workers[SECOND]},
        absent_since={"n1": NOW - 9},
    )
    first = _decide(spec, actual)
    moved = _only(Assign, first).assignment
    assert (moved.job, moved.revision) == ("job~1", 2)
    assert [slot.node for slot in moved.executors] == ["n2", "n2"]
    second = _only(Assign, _decide(spec, _after(actual, first))).assignment
    assert (second.job, second.node) == ("job", "n3")
    assert {slot.node for slot in second.executors} == {"n3"}


@pytest.mark.parametrize(
    ("joined", "safety"),
    [
        ((IN_STEP, IN_STEP, IN_STEP), "k-safe"),
        ((IN_STEP, IN_STEP, None), "degraded (k=1)"),
        ((IN_STEP, None, None), "degraded (k=0)"),
        ((None, None, None), "degraded (k=0)"),
        ((IN_STEP, IN_STEP, BEHIND), "recovering (30% caught up)"),
        ((IN_STEP, BEHIND, replace(BEHIND, batch=79)), "recovering (30% caught up)"),
        ((IN_STEP, IN_STEP, replace(IN_STEP, whole=False)), "recovering (100% caught up)"),
    ],
)
def test_safety(joined: tuple[ReplicaReport | None, ...], safety: str) -> None:
    names = ["job", "job~1", "job~2"]
    nodes = dict(zip(names, NODES, strict=True))
    actual = make_state(
        nodes=NODES,
        assignments={name: _assignment(name, node, 1) for name, node in nodes.items()},
        workers={
            name: (_worker(name, node, 1, one),) if one is not None else ()
            for (name, node), one in zip(nodes.items(), joined, strict=True)
        },
    )
    assert _only(SetStatus, _decide(_spec(k=2), actual)).status.safety == safety


def test_a_replica_that_catches_up_has_the_status_written_now_and_then() -> None:
    written = []
    actual = _actual()
    for batch in range(97):
        joined = ReplicaReport(batch=batch, head=100, since=0)
        seen = replace(actual, workers={**actual.workers, SECOND: (_worker("job~1", "n2", 2, joined),)})
        actions = _decide(_spec(), seen)
        written += _all(SetStatus, actions)
        actual = _after(actual, actions)
    assert 15 <= len(written) <= 21


def test_replicas_in_one_rack_are_told_of() -> None:
    nodes = _nodes("n1", "n2", "n3", racks="aab")
    other = _assignment("other", "n3", 1, cores=4, membership=None)
    actual = make_state(nodes=nodes, assignments={"other": other})
    desired = {"job": _spec(), "other": make_spec("other", "a" * 64, "job.py", resources=Resources(4, GIB))}
    actions = reconcile(desired, actual, NOW, epoch=1, placer=JobPlacer())
    [status] = [one.status for one in _all(SetStatus, actions) if one.job == "job"]
    assert status.reason.endswith("; replica 1 shares rack a with replica 0")


def test_a_job_is_over_when_one_replica_has_drained() -> None:
    drained = _actual(results={"job~1": Result("job~1", 2, "drained", "all is processed", NOW)})
    actions = _decide(_spec(until="drained"), drained)
    assert sorted(str(one.replica) for one in _all(Unassign, actions)) == ["job", "job~1"]
    status = _only(SetStatus, actions).status
    assert (status.phase, status.reason) == ("ENDED", "drained: all is processed")
    assert _decide(_spec(until="drained"), _after(drained, actions)) == []


@pytest.mark.parametrize(
    ("result", "after"),
    [
        (Result("job~1", 2, "stopped", "", NOW), 0),
        (Result("job~1", 2, "drained", "", NOW), 2),
        (Result("job~1", 1, "drained", "", NOW), 0),
        (Result("job~2", 9, "drained", "", NOW), 0),
    ],
)
def test_results_that_end_nothing(result: Result, after: int) -> None:
    assert _decide(_spec(after=after), _actual(results={result.job: result})) == []


def test_a_killed_job_has_ended_when_no_worker_of_any_replica_is_left() -> None:
    killed = _spec(wanted="ended")
    first = _decide(killed, _actual())
    assert sorted(str(one.replica) for one in _all(Unassign, first)) == ["job", "job~1"]
    assert _only(SetStatus, first).status.phase == "ENDING"
    one_left = replace(_after(_actual(), first), workers={"job~1": _actual().workers[SECOND]})
    second = _decide(killed, one_left)
    assert _only(SetStatus, second).status.reason == "its worker on n2 ends its batch"
    none_left = replace(_after(one_left, second), workers={})
    assert _only(SetStatus, _decide(killed, none_left)).status.phase == "ENDED"


NEW_CODE = {"bundle": "b" * 64, "generation": 2, "before": Code("a" * 64, "job.py", {}, 1)}


def _updated(spec: JobSpec, **changes: Any) -> ClusterState:
    """Both replicas have new code assigned, and their old workers still run."""
    assignments = {
        "job": _assignment("job", "n1", 3, spec),
        "job~1": _assignment("job~1", "n2", 4, spec),
    }
    return _actual(assignments=assignments, **changes)


def _refused(name: str, revision: int) -> Result:
    return Result(name, revision, "refused", "it lacks numpy", NOW)


def test_an_update_is_given_up_when_no_replica_can_run_it() -> None:
    spec = _spec(**NEW_CODE)
    both = {"job": _refused("job", 3), "job~1": _refused("job~1", 4)}
    actions = _decide(spec, _updated(spec, results=both))
    back = _only(UpdateSpec, actions).spec
    assert (back.bundle, back.before, back.after, back.name) == ("a" * 64, None, 4, "job")
    assert _only(Raise, actions).alarm.kind == "update-refused"


def test_an_update_is_not_given_up_while_another_replica_may_come_to_run_it() -> None:
    spec = _spec(**NEW_CODE)
    one = {"job~1": _refused("job~1", 4)}
    actions = _decide(spec, _updated(spec, results=one))
    assert _all(UpdateSpec, actions) == []
    begun = _worker("job", "n1", 3)
    runs = {"job": (begun,), "job~1": (_worker("job~1", "n2", 2),)}
    assert _all(UpdateSpec, _decide(spec, _updated(spec, results=one, workers=runs))) == [], "no batch yet"
    runs["job"] = (replace(begun, progress=Progress(batches=1, records_in=9)),)
    actions = _decide(spec, _updated(spec, results=one, workers=runs))
    assert _only(UpdateSpec, actions).spec.before is None, "one runs it: from now on it is no update"
    assert _only(Raise, actions).alarm.kind == "replica-failing"
    assert "it lacks numpy" in _only(Raise, actions).alarm.reason


def test_a_job_that_is_refused_by_all_fails() -> None:
    both = {"job": _refused("job", 1), "job~1": _refused("job~1", 2)}
    actions = _decide(_spec(), _actual(results=both, workers={}))
    assert _only(SetStatus, actions).status.phase == "FAILED"
    assert _only(Raise, actions).alarm.kind == "job-failed"
    assert _decide(_spec(), _after(_actual(results=both, workers={}), actions)) == []


def _died(name: str, revision: int, node: str, count: int = 8) -> Failures:
    return Failures(name, revision, count, "out of memory", node, NOW)


def test_a_replica_that_keeps_dying_does_not_end_the_job() -> None:
    dying = replace(
        _with_workers(job_1=()), nodes=_nodes("n1", "n2"), failures={"job~1": _died("job~1", 2, "n2")}
    )
    actions = _decide(_spec(), dying)
    assert [type(action) for action in actions] == [SetStatus, Raise]
    alarm = _only(Raise, actions).alarm
    assert (alarm.id, alarm.subject) == ("replica-failing.job", "job")
    assert alarm.evidence == {"replicas": ["job~1"]}
    after = _after(dying, actions)
    counted = replace(after, failures={"job~1": _died("job~1", 2, "n2", 9)})
    assert _all(Raise, _decide(_spec(), counted)) == [], "it is known"
    well = replace(after, failures={}, workers=_actual().workers)
    assert _only(Clear, _decide(_spec(), well)).id == "replica-failing.job"


def test_a_replica_that_is_up_for_a_while_runs_well_though_its_failures_are_not_forgotten() -> None:
    failures = {"job": _died("job", 1, "n1"), "job~1": _died("job~1", 2, "n2")}
    up = _actual(failures=failures)
    assert [one.alarm.kind for one in _all(Raise, _decide(_spec(), up, NOW + 599))] == ["job-failed"]
    assert _decide(_spec(), up, NOW + 600) == []
    busy = {name: (replace(worker, progress=Progress(batches=2)),) for name, (worker,) in up.workers.items()}
    assert _decide(_spec(), replace(up, workers=busy), NOW + 1) == []


def test_a_job_whose_replicas_all_keep_dying_fails() -> None:
    failures = {"job": _died("job", 1, "n1"), "job~1": _died("job~1", 2, "n2")}
    actions = _decide(_spec(), _actual(failures=failures, workers={}))
    assert sorted(str(one.replica) for one in _all(Unassign, actions)) == ["job", "job~1"]
    assert _only(SetStatus, actions).status.phase == "FAILED"
    assert _only(Raise, actions).alarm.evidence["count"] == 8


@pytest.mark.parametrize(("nodes", "fails"), [(("n2",), True), (("n2", "n3"), False)])
def test_a_replica_without_a_node_is_no_hope_and_one_that_finds_another_is(
    nodes: tuple[str, ...], fails: bool
) -> None:
    lost = _actual(
        nodes=_nodes(*nodes),
        workers={},
        absent_since={"n1": NOW - 9},
        failures={"job~1": _died("job~1", 2, "n2")},
    )
    status = _only(SetStatus, _decide(_spec(), lost)).status
    assert (status.phase == "FAILED") == fails


def test_new_code_of_which_all_replicas_die_goes_back_while_the_old_runs() -> None:
    spec = _spec(**NEW_CODE)
    failures = {"job": _died("job", 3, "n1"), "job~1": _died("job~1", 4, "n2")}
    assert _only(UpdateSpec, _decide(spec, _updated(spec, failures=failures))).spec.bundle == "a" * 64


def test_new_code_of_which_all_replicas_die_on_their_first_record_goes_back_too() -> None:
    spec = _spec(**NEW_CODE)
    failures = {"job": _died("job", 3, "n1", 4), "job~1": _died("job~1", 4, "n2", 4)}
    stopped = _updated(spec, failures=failures, workers={})
    assert _only(UpdateSpec, _decide(spec, stopped)).spec.bundle == "a" * 64
    fewer = {"job": _died("job", 3, "n1", 4), "job~1": _died("job~1", 4, "n2", 3)}
    assert _all(UpdateSpec, _decide(spec, replace(stopped, failures=fewer))) == []


def test_a_replicated_job_that_has_failed_is_tried_again_after_a_while() -> None:
    failures = {"job": _died("job", 1, "n1"), "job~1": _died("job~1", 2, "n2")}
    dead = _actual(failures=failures, workers={})
    failed = _after(dead, _decide(_spec(), dead))
    assert _decide(_spec(), failed, NOW + 599) == []
    actions = _decide(_spec(), failed, NOW + 600)
    assert _only(UpdateSpec, actions).spec.after == failed.statuses["job"].revision
    assert _only(SetStatus, actions).status.phase == "PENDING"


def test_less_safe_than_before_is_an_alarm_after_a_while_until_it_is_safe_again() -> None:
    hurt = _with_workers(job_1=())
    first = _decide(_spec(), hurt)
    assert _all(Raise, first) == []
    hurt = _after(hurt, first)
    assert hurt.statuses["job"].unsafe_since == NOW
    assert _all(Raise, _decide(_spec(), hurt, NOW + 4)) == []
    later = _decide(_spec(), hurt, NOW + 5)
    alarm = _only(Raise, later).alarm
    assert (alarm.kind, alarm.subject, alarm.since) == ("degraded", "job", NOW)
    assert "degraded (k=0)" in alarm.reason
    hurt = _after(hurt, later)
    assert _decide(_spec(), hurt, NOW + 9) == []
    healed = _decide(_spec(), replace(hurt, workers=_actual().workers), NOW + 20)
    assert _only(Clear, healed).id == "degraded.job"
    assert _only(SetStatus, healed).status.unsafe_since == 0.0


def test_a_job_that_was_never_safe_or_gets_another_replica_is_no_alarm() -> None:
    starting = ClusterState(nodes=NODES)
    starting = _after(starting, _decide(_spec(), starting))
    assert _all(Raise, _decide(_spec(), starting, NOW + 60)) == []
    more = _after(_actual(), _decide(_spec(k=2), _actual()))
    assert more.statuses["job"].safety == "degraded (k=1)"
    assert _all(Raise, _decide(_spec(k=2), more, NOW + 60)) == []


def test_alarms_of_a_job_end_with_it() -> None:
    alarms = {
        f"{kind}.job": Alarm(f"{kind}.job", kind, "job", "", NOW)
        for kind in ("degraded", "replica-failing", "replicas-differ")
    }
    drained = _actual(results={"job": Result("job", 1, "drained", "", NOW)}, alarms=alarms)
    cleared = [one.id for one in _all(Clear, _decide(_spec(), drained))]
    assert cleared == ["degraded.job", "replica-failing.job"]
    none = [one.id for one in _all(Clear, _decide(None, ClusterState(nodes=NODES, alarms=alarms)))]
    assert none == ["degraded.job", "replica-failing.job"]


def test_replicas_that_differ_are_told_of_once_with_the_newest_evidence() -> None:
    def differing(at: float, batch: int) -> ClusterState:
        found = Difference(batch, "count", "job", "digests differ", at)
        return _with_workers(job_1=(_worker("job~1", "n2", 2, replace(IN_STEP, differed=found)),))

    first = _decide(_spec(), differing(500.0, 7))
    alarm = _only(Raise, first).alarm
    assert (alarm.id, alarm.evidence["batch"], alarm.evidence["vertex"]) == (
        "replicas-differ.job",
        7,
        "count",
    )
    assert (alarm.evidence["by"], alarm.evidence["replica"]) == ("job", "job~1")
    assert isinstance(first[0], Raise), "before it is noted that people were told"
    known = _after(differing(500.0, 7), first)
    assert _decide(_spec(), known) == []
    assert _decide(_spec(), replace(known, alarms={})) == [], "a person has cleared it"
    newer = replace(known, workers=differing(600.0, 8).workers)
    assert _only(Raise, _decide(_spec(), newer)).alarm.evidence["batch"] == 8


WARM = {"k": 0, "warm_standby": True}


def _warm(runner: str = "job", phase: str = "ready", **changes: Any) -> ClusterState:
    """One replica runs and the other one is ready."""
    nodes = {"job": "n1", "job~1": "n2"}
    spec = _spec(**WARM)
    actual = make_state(
        nodes=NODES,
        assignments={
            name: _assignment(name, node, number, spec, runs=name == runner)
            for number, (name, node) in enumerate(nodes.items(), 1)
        },
        workers={
            name: (_worker(name, node, number, None, "running" if name == runner else phase),)
            for number, (name, node) in enumerate(nodes.items(), 1)
        },
        statuses={"job": JobStatus("RUNNING", "", NOW - 100, 2, "standby ready on n2")},
    )
    return replace(actual, **changes)


def test_a_warm_standby_waits() -> None:
    actions = _decide(_spec(**WARM), ClusterState(nodes=NODES))
    made = {str(one.replica): one.assignment for one in _all(Assign, actions)}
    assert [one.membership and one.membership.runs for one in made.values()] == [True, False]
    assert _only(SetStatus, actions).status.safety == "no standby"
    ready = _only(SetStatus, _decide(_spec(**WARM), _warm())).status
    assert (ready.phase, ready.safety) == ("RUNNING", "standby ready on n2")


def _runs(actions: list[Action]) -> dict[str, tuple[int, bool]]:
    made = [one.assignment for one in _all(Assign, actions)]
    return {one.job: (one.revision, one.membership is not None and one.membership.runs) for one in made}


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": _nodes("n2", "n3")},
        {},
    ],
    ids=["its node is gone", "its worker is gone"],
)
def test_a_warm_standby_takes_over_at_once(change: dict[str, Any]) -> None:
    gone = _warm(workers={"job~1": _warm().workers[SECOND]}, **change)
    actions = _decide(_spec(**WARM), gone)
    assert _runs(actions) == {"job": (3, False), "job~1": (2, True)}
    [first, second] = [one.assignment for one in _all(Assign, actions)]
    assert (first.node, second.node) == ("n3" if change else "n1", "n2")
    taking_over = _decide(_spec(**WARM), _after(gone, actions))
    assert _only(SetStatus, taking_over).status.safety == "no standby"
    assert _all(Assign, taking_over) == []


def test_a_warm_standby_takes_over_from_one_that_starts_again() -> None:
    starting = (_worker("job", "n1", 1, None, "starting", attempt=2),)
    again = _warm(
        workers={**_warm().workers, FIRST: starting}, failures={"job": _died("job", 1, "n1", count=1)}
    )
    assert _runs(_decide(_spec(**WARM), again)) == {"job": (3, False), "job~1": (2, True)}


def test_a_standby_that_had_died_often_and_can_go_nowhere_else_takes_over_too() -> None:
    gone = _warm(
        nodes=_nodes("n2"),
        workers={"job~1": _warm().workers[SECOND]},
        failures={"job~1": _died("job~1", 2, "n2", count=3)},
    )
    assert _runs(_decide(_spec(**WARM), gone)) == {"job~1": (2, True)}


@pytest.mark.parametrize("phase", ["starting", "stopped"])
def test_a_standby_that_is_not_ready_does_not_take_over(phase: str) -> None:
    gone = _warm(workers={"job~1": _warm(phase=phase).workers[SECOND]})
    assert _runs(_decide(_spec(**WARM), gone)) == {}


def test_a_job_that_has_not_run_yet_is_given_time_to_start() -> None:
    statuses = {"job": JobStatus("STARTING", "", NOW, 2)}
    early = _warm(workers={"job~1": _warm().workers[SECOND]}, statuses=statuses)
    assert _runs(_decide(_spec(**WARM), early)) == {}


def test_of_two_that_run_one_is_told_to_wait_by_a_new_revision() -> None:
    both = _warm(
        assignments={
            "job": _assignment("job", "n1", 1, _spec(**WARM)),
            "job~1": _assignment("job~1", "n2", 2, _spec(**WARM)),
        },
        workers=_actual().workers,
    )
    assert _runs(_decide(_spec(**WARM), both)) == {"job~1": (3, False)}
    one = replace(both, workers={"job~1": both.workers[SECOND]})
    assert _runs(_decide(_spec(**WARM), one)) == {"job": (3, False)}


def test_a_warm_standby_becomes_a_replica_that_runs_without_a_new_worker() -> None:
    assert _runs(_decide(_spec(k=1, warm_standby=True), _warm())) == {"job~1": (2, True)}
    assert _runs(_decide(_spec(**WARM), _actual())) == {"job~1": (3, False)}


def test_the_first_replica_is_moved_but_not_to_where_another_is() -> None:
    moved = _decide(_spec(driver="n3"), _actual())
    assert (_only(Assign, moved).job, _only(Assign, moved).assignment.node) == ("job", "n3")
    assert _decide(_spec(driver="n2"), _actual()) == []


def test_a_wish_for_a_node_where_the_worker_keeps_dying_is_given_up_for_the_job() -> None:
    spec = _spec(driver="n1", **NEW_CODE)
    dying = _updated(spec, failures={"job": _died("job", 3, "n1", 3)})
    actions = _decide(spec, dying)
    respec = _only(UpdateSpec, actions).spec
    assert (respec.name, respec.driver) == ("job", "")
    assert respec.before == spec.before, "its new code does not run yet"
    assert (_only(Assign, actions).job, _only(Assign, actions).assignment.node) == ("job", "n3")


def test_a_job_is_given_up_when_the_other_replica_finds_no_room_either() -> None:
    """Replica 0 was refused, and replica 1 has lost its node: the only node left is full."""
    full = replace(_assignment("full", "n3", 1), cores=4, membership=None)
    actual = _actual(
        nodes=_nodes("n1", "n3"),
        assignments={**_actual().assignments, "full": full},
        workers={},
        results={"job": _refused("job", 1)},
        absent_since={"n2": NOW - 60},
    )
    desired = {"job": _spec(), "full": replace(_spec(), name="full", k=0, agreed=False)}
    decided = reconcile(desired, actual, NOW, epoch=7, placer=JobPlacer())
    assert [one.status.phase for one in _all(SetStatus, decided) if one.job == "job"] == ["FAILED"]


def test_a_standby_takes_over_from_one_that_dies_with_code_that_is_not_wanted_any_more() -> None:
    """The new code finds no node there: what it may use is full or has the standby."""
    spec = _spec(**WARM, generation=2, bundle="b" * 64, nodes=("n2",))
    old = _assignment("job", "n1", 1, _spec(**WARM))
    new = _assignment("job~1", "n2", 2, spec, runs=False)
    actual = _warm(
        nodes=_nodes("n1", "n2"),
        assignments={"job": old, "job~1": new},
        workers={
            "job": (_worker("job", "n1", 1, None, "starting"),),
            "job~1": (_worker("job~1", "n2", 2, None, "ready"),),
        },
        statuses={"job": JobStatus("STARTING", "", NOW - 100, 2)},
    )
    assert _runs(_decide(spec, actual)) == {"job~1": (2, True)}


def test_a_replica_whose_share_of_the_nodes_cannot_take_it_is_no_hope() -> None:
    """Its driver would fit on one node and its executor on another, but each replica has one node to use."""
    asked = Resources(cores=2, memory=GIB, executors=1, executor_cores=1, executor_memory=GIB)
    spec = _spec(resources=asked)
    nodes = {**_nodes("n1"), "n3": NodeInfo("n3", "", 2, 8 * GIB), "n4": NodeInfo("n4", "", 2, 8 * GIB)}
    on_first = (ExecutorSlot(1, "n1", 1, GIB),)
    on_second = (ExecutorSlot(1, "n2", 1, GIB),)
    lost = _actual(
        nodes=nodes,
        assignments={
            "job": _assignment("job", "n1", 1, spec, executors=on_first, executors_asked=1),
            "job~1": _assignment("job~1", "n2", 2, spec, executors=on_second, executors_asked=1),
        },
        workers={},
        absent_since={"n2": NOW - 9},
        results={"job": _refused("job", 1)},
    )
    assert _only(SetStatus, _decide(spec, lost)).status.phase == "FAILED"
    roomy = replace(lost, nodes={**nodes, "n4": NodeInfo("n4", "", 3, 8 * GIB)})
    assert _only(SetStatus, _decide(spec, roomy)).status.phase != "FAILED"


def test_a_drain_of_replicas_completes_though_another_change_has_no_node() -> None:
    wanted = _spec(
        generation=2, after=2, wanted="ended", drain=True, resources=Resources(cores=8, memory=GIB)
    )
    actual = _actual(workers={}, results={"job~1": Result("job~1", 2, "drained", "all is processed", NOW)})
    assert _only(SetStatus, _decide(wanted, actual)).status.phase == "ENDED"
