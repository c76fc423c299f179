"""The leader's decision, case by case."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.cluster_state import ClusterState, Rules
from penstock.cluster.job_documents import Alarm, Code, JobSpec, JobStatus
from penstock.cluster.leader_actions import Action, Assign, Clear, Raise, SetStatus, Unassign, UpdateSpec
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import (
    Failures,
    Progress,
    Result,
    WorkerFailure,
    WorkerFigures,
    WorkerInfo,
)
from penstock.job_settings import Resources
from penstock.schedule.job_placer import JobPlacer
from support.settings import make_assignment, make_spec, make_state, replace

T = TypeVar("T")

NOW = 1000.0
GIB = 1 << 30


def _node(name: str, cores: int = 4, **more: Any) -> NodeInfo:
    return NodeInfo(name, f"127.0.0.{name[1:]}", cores, 8 * GIB, **more)


NODES = {name: _node(name) for name in ("n1", "n2", "n3")}


def _spec(**changes: Any) -> JobSpec:
    return replace(make_spec("job", "a" * 64, "job.py", resources=Resources(cores=2, memory=GIB)), **changes)


def _assignment(spec: JobSpec | None = None, **changes: Any) -> Assignment:
    spec = spec or _spec()
    made = make_assignment(
        "job",
        1,
        1,
        spec.generation,
        spec.bundle,
        spec.entry,
        "n1",
        spec.settings.resources.cores,
        spec.settings.resources.memory,
    )
    return replace(made, **changes)


def _worker(revision: int = 1, node: str = "n1", phase: str = "running", attempt: int = 1) -> WorkerInfo:
    return WorkerInfo("job", revision, attempt, node, 1, phase, NOW, progress=Progress())


def _status(phase: str = "RUNNING", revision: int = 1, reason: str = "running on n1") -> JobStatus:
    return JobStatus(phase, reason, NOW - 100, revision)


def _actual(**changes: Any) -> ClusterState:
    running = make_state(
        nodes=NODES,
        assignments={"job": _assignment()},
        workers={"job": (_worker(),)},
        statuses={"job": _status()},
    )
    return replace(running, **changes)


def _decide(spec: JobSpec | None, actual: ClusterState, **rules: Any) -> list[Action]:
    desired = {spec.name: spec} if spec else {}
    return reconcile(desired, actual, NOW, epoch=7, placer=JobPlacer(), rules=Rules(**rules))


def _only(kind: type[T], actions: list[Action]) -> T:
    [found] = [action for action in actions if isinstance(action, kind)]
    return found


def test_what_is_as_wanted_is_left_alone() -> None:
    assert _decide(_spec(), _actual()) == []


def test_a_job_that_cannot_be_tried_elsewhere_is_adjusted_where_it_is() -> None:
    failures = {"job": Failures("job", 1, 3, "it died", "n1", NOW)}
    alone = _actual(nodes={"n1": NODES["n1"]}, failures=failures)
    assigned = _only(Assign, _decide(_spec(wanted="ended", drain=True), alone)).assignment
    assert (assigned.revision, assigned.settings.until) == (1, "drained")


def test_a_new_job_goes_to_the_node_with_the_most_room() -> None:
    nodes = {"n1": _node("n1", 2), "n2": _node("n2", 8), "n3": _node("n3", 4)}
    actions = _decide(_spec(), ClusterState(nodes=nodes))
    assigned = _only(Assign, actions).assignment
    assert (assigned.node, assigned.revision, assigned.epoch) == ("n2", 1, 7)
    assert _only(SetStatus, actions).status == JobStatus("STARTING", "it was submitted: on n2", NOW, 1)


def test_a_job_that_fits_nowhere_waits_and_says_why_for_each_node() -> None:
    nodes = {"n1": _node("n1", 1), "n2": _node("n2", 8), "n3": _node("n3", labels={"disk": "ssd"})}
    spec = _spec(nodes=("n1", "n3"), labels={"disk": "ssd"}, resources=Resources(cores=9))
    status = _only(SetStatus, _decide(spec, ClusterState(nodes=nodes))).status
    assert status.phase == "PENDING"
    assert "it lacks the label disk=ssd (n1)" in status.reason
    assert "the task is for n1, n3 only (n2)" in status.reason
    assert "9 cores asked for, 4 of 4 free (n3)" in status.reason


def test_jobs_share_the_room_in_the_order_of_their_names() -> None:
    jobs = {name: replace(_spec(), name=name) for name in ("b", "a", "c")}
    actions = reconcile(jobs, ClusterState(nodes={"n1": _node("n1", 4)}), NOW, epoch=1, placer=JobPlacer())
    assert [action.assignment.job for action in actions if isinstance(action, Assign)] == ["a", "b"]


def test_a_lost_node_is_given_its_time_and_then_its_work_moves() -> None:
    two = {name: NODES[name] for name in ("n2", "n3")}
    gone = _actual(nodes=two, workers={}, absent_since={"n1": NOW - 3})
    assert not [action for action in _decide(_spec(), gone) if isinstance(action, Assign)]
    actions = _decide(_spec(), replace(gone, absent_since={"n1": NOW - 4}))
    assigned = _only(Assign, actions)
    assert (assigned.assignment.node, assigned.assignment.revision) == ("n2", 2)
    assert assigned.reason == "node n1 is lost: on n2"
    assert _only(Raise, actions).alarm.kind == "node-lost"


def test_a_worker_that_holds_its_place_is_not_doubled_when_its_supervisor_dies() -> None:
    two = {name: NODES[name] for name in ("n2", "n3")}
    actions = _decide(_spec(), _actual(nodes=two, absent_since={"n1": NOW - 60}))
    assert _only(Raise, actions).alarm.kind == "unsupervised"
    assert not [action for action in actions if isinstance(action, Assign)]


def test_alarms_of_nodes_end_when_the_node_is_back() -> None:
    two = {name: NODES[name] for name in ("n2", "n3")}
    lost = _only(Raise, _decide(_spec(), _actual(nodes=two, workers={}, absent_since={"n1": NOW - 9}))).alarm
    assert _only(Clear, _decide(_spec(), _actual(alarms={lost.id: lost}))).id == lost.id
    still = _actual(nodes=two, assignments={"job": _assignment(node="n2")}, alarms={lost.id: lost})
    assert not [action for action in _decide(_spec(), still) if isinstance(action, Clear)]


def test_a_job_that_ended_stays_ended_whoever_leads() -> None:
    result = Result("job", 1, "drained", "all was read", NOW)
    actions = _decide(_spec(until="drained"), _actual(results={"job": result}, workers={}))
    assert _only(Unassign, actions).job == "job"
    assert _only(SetStatus, actions).status.phase == "ENDED"
    over = make_state(
        nodes=NODES, results={"job": result}, statuses={"job": _status("ENDED", 1, "drained: all was read")}
    )
    assert _decide(_spec(until="drained"), over) == []
    newly_led = reconcile({"job": _spec()}, replace(over, statuses={}), NOW + 9, epoch=8, placer=JobPlacer())
    assert _only(SetStatus, newly_led).status.phase == "ENDED"


def test_the_result_of_an_earlier_life_is_history() -> None:
    result = Result("job", 3, "stopped", "it was killed", NOW)
    actual = make_state(nodes=NODES, results={"job": result}, statuses={"job": _status("PENDING", 3)})
    assert _only(Assign, _decide(_spec(after=3), actual)).assignment.revision == 4


def test_a_killed_job_ends_when_its_worker_has_left() -> None:
    spec = _spec(wanted="ended")
    actions = _decide(spec, _actual())
    assert isinstance(actions[0], Unassign)
    assert _only(SetStatus, actions).status.phase == "ENDING"
    leaving = _actual(assignments={})
    assert _only(SetStatus, _decide(spec, leaving)).status.phase == "ENDING"
    assert _only(SetStatus, _decide(spec, replace(leaving, workers={}))).status.phase == "ENDED"


@pytest.mark.parametrize("phase", ["", "starting", "running"])
@pytest.mark.parametrize("failures", [0, 1, 8])
def test_a_kill_is_taken_at_once_in_whatever_state_the_worker_is(phase: str, failures: int) -> None:
    failed = {"job": Failures("job", 1, failures, "it died", "n1", NOW)} if failures else {}
    workers = {"job": (_worker(phase=phase),)} if phase else {}
    actions = _decide(_spec(wanted="ended"), _actual(workers=workers, failures=failed))
    assert _only(Unassign, actions).job == "job"


def test_a_drained_job_runs_on_until_it_has_no_more_even_elsewhere() -> None:
    spec = _spec(wanted="ended", drain=True)
    assert _only(Assign, _decide(spec, _actual())).assignment.settings.until == "drained"
    two = {name: NODES[name] for name in ("n2", "n3")}
    lost = _actual(nodes=two, workers={}, absent_since={"n1": NOW - 9})
    moved = _only(Assign, _decide(spec, lost)).assignment
    assert (moved.node, moved.settings.until) == ("n2", "drained")


def test_new_code_is_a_new_revision_on_the_same_node() -> None:
    actions = _decide(_spec(generation=2, bundle="b" * 64), _actual())
    assigned = _only(Assign, actions).assignment
    assert (assigned.revision, assigned.generation, assigned.node) == (2, 2, "n1")


def test_while_the_new_worker_starts_the_job_counts_as_running() -> None:
    spec = _spec(generation=2)
    actual = _actual(
        assignments={"job": _assignment(spec, revision=2)},
        workers={"job": (_worker(1), _worker(2, phase="starting"))},
        statuses={"job": _status("STARTING", 2)},
    )
    status = _only(SetStatus, _decide(spec, actual)).status
    assert (status.phase, status.reason) == ("RUNNING", "on n1, until revision 2 is ready")


def test_a_refused_update_falls_back_to_the_code_before() -> None:
    before = Code("a" * 64, "job.py", {"name": "job"}, 1)
    spec = _spec(generation=2, bundle="b" * 64, before=before)
    result = Result("job", 2, "refused", "the state would be lost", NOW)
    actual = _actual(assignments={"job": _assignment(spec, revision=2)}, results={"job": result})
    actions = _decide(spec, actual)
    back = _only(UpdateSpec, actions).spec
    assert (back.bundle, back.generation, back.before, back.after) == ("a" * 64, 1, None, 2)
    assert _only(Raise, actions).alarm.kind == "update-refused"
    again = _only(Assign, _decide(back, actual)).assignment
    assert (again.revision, again.generation) == (3, 1)


def test_when_the_new_code_runs_there_is_nothing_to_fall_back_to_any_more() -> None:
    spec = _spec(generation=2, before=Code("a" * 64, "job.py", {}, 1))
    begun = _worker(2)
    running = _actual(assignments={"job": _assignment(spec, revision=2)}, workers={"job": (begun,)})
    assert not [action for action in _decide(spec, running) if isinstance(action, UpdateSpec)], "no batch yet"
    for well in (
        replace(begun, progress=Progress(batches=1, records_in=3)),
        replace(begun, progress=Progress(batches=2)),
        replace(begun, since=NOW - 600),
    ):
        proven = replace(running, workers={"job": (well,)})
        assert _only(UpdateSpec, _decide(spec, proven)).spec == replace(spec, before=None)
    starting = replace(running, workers={"job": (_worker(1), _worker(2, phase="ready"))})
    assert not [action for action in _decide(spec, starting) if isinstance(action, UpdateSpec)]


def test_a_job_refused_at_first_has_failed() -> None:
    result = Result("job", 1, "refused", "no such source", NOW)
    actions = _decide(_spec(), _actual(results={"job": result}, workers={}))
    assert _only(SetStatus, actions).status.phase == "FAILED"
    assert _only(Raise, actions).alarm.kind == "job-failed"


def test_a_worker_that_dies_too_often_is_excluded_until_somebody_clears_it() -> None:
    failures = Failures("job", 1, 8, "it was killed by SIGSEGV", "n1", NOW)
    dying = _actual(failures={"job": failures}, workers={})
    actions = _decide(_spec(), dying)
    assert _only(SetStatus, actions).status.phase == "FAILED"
    alarm = _only(Raise, actions).alarm
    assert alarm.evidence["count"] == 8
    assert alarm.reason.endswith("it was killed by SIGSEGV; it is restarted after 10 minutes")
    failed = replace(dying, assignments={}, alarms={alarm.id: alarm})
    assert not [action for action in _decide(_spec(), failed) if isinstance(action, Assign)]
    cleared = _decide(_spec(after=1), failed)
    assert _only(Assign, cleared).assignment.revision == 2
    assert _only(Clear, cleared).id == alarm.id


def test_a_worker_that_keeps_dying_on_one_node_is_tried_on_another() -> None:
    failures = Failures("job", 1, 3, "no space left", "n1", NOW)
    moved = _only(Assign, _decide(_spec(), _actual(failures={"job": failures}))).assignment
    assert (moved.node, moved.revision) == ("n2", 2)
    later = replace(failures, count=4)
    moved = _only(Assign, _decide(_spec(), _actual(failures={"job": later}))).assignment
    assert moved.node == "n2", "a leader may see the fourth failure first"
    well = replace(_worker(), progress=Progress(batches=2))
    for calm in (
        _actual(failures={"job": failures}, workers={"job": (well,)}),
        _actual(failures={"job": replace(failures, at=NOW - 601)}),
        _actual(failures={"job": replace(failures, count=2)}),
    ):
        assert not [action for action in _decide(_spec(), calm) if isinstance(action, Assign)]
    alone = _actual(failures={"job": failures}, nodes={"n1": NODES["n1"]})
    assert not [action for action in _decide(_spec(), alone) if isinstance(action, Assign)]


def test_a_worker_that_was_moved_is_given_its_tries_on_the_next_node() -> None:
    there = tuple(WorkerFailure(NOW, "n1", 1) for _ in range(3))
    here = (*there, WorkerFailure(NOW, "n2", 2))
    moved = _actual(
        assignments={"job": _assignment(node="n2", revision=2)},
        workers={},
        failures={"job": Failures("job", 2, 4, "it died", "n2", NOW, here)},
    )
    assert not [action for action in _decide(_spec(), moved) if isinstance(action, Assign)]
    tried = (*here, WorkerFailure(NOW, "n2", 2), WorkerFailure(NOW, "n2", 2))
    again = replace(moved, failures={"job": Failures("job", 2, 6, "it died", "n2", NOW, tried)})
    assert _only(Assign, _decide(_spec(), again)).assignment.node == "n3", "not back to n1"


def test_a_job_is_not_ended_because_a_new_worker_of_the_same_code_fails_while_the_old_one_runs() -> None:
    failures = Failures("job", 2, 8, "no space left", "n2", NOW)
    moving = _actual(
        nodes={"n1": NODES["n1"], "n2": NODES["n2"]},
        assignments={"job": _assignment(revision=2, node="n2")},
        workers={"job": (_worker(1),)},
        failures={"job": failures},
    )
    actions = _decide(_spec(nodes=("n2",)), moving)
    assert not [action for action in actions if isinstance(action, Unassign)]
    assert _only(Raise, actions).alarm.kind == "job-failing"


def test_a_job_that_has_failed_is_tried_again_after_a_while_and_later_each_time() -> None:
    failures = Failures("job", 1, 8, "no database", "n1", NOW)
    failed = _actual(
        assignments={},
        workers={},
        failures={"job": failures},
        statuses={"job": replace(_status("FAILED"), since=NOW - 600)},
    )
    alarm = _only(Raise, _decide(_spec(), replace(failed, failures={}))).alarm
    failed = replace(failed, alarms={alarm.id: alarm})
    actions = _decide(_spec(), failed)
    spec, status = _only(UpdateSpec, actions).spec, _only(SetStatus, actions).status
    assert (spec.after, status.phase, status.chances) == (1, "PENDING", 1)
    assert not [action for action in actions if isinstance(action, Clear)], "it has not run well yet"
    for since, chances in ((NOW - 599, 0), (NOW - 1199, 1), (NOW - 3599, 9)):
        waiting = {"job": replace(_status("FAILED"), since=since, chances=chances)}
        assert _decide(_spec(), replace(failed, statuses=waiting)) == []
    set_back = {"job": replace(_status("FAILED"), since=NOW + 3600)}
    assert [a for a in _decide(_spec(), replace(failed, statuses=set_back)) if isinstance(a, UpdateSpec)]


def test_a_job_that_was_refused_is_not_tried_again() -> None:
    failed = _actual(
        assignments={},
        workers={},
        failures={"job": Failures("job", 1, 8, "it died", "n1", NOW)},
        results={"job": Result("job", 1, "refused", "no such column", NOW)},
        statuses={"job": replace(_status("FAILED"), since=NOW - 9000)},
    )
    assert not [action for action in _decide(_spec(), failed) if isinstance(action, UpdateSpec)]


def test_the_alarm_of_a_job_that_is_tried_again_ends_when_it_has_run_well() -> None:
    alarm = Alarm("job-failed.job", "job-failed", "job", "why", NOW, {"revision": 1})
    tried = replace(_status("RUNNING", 2), since=NOW - 599, chances=1)
    assignments = {"job": _assignment(revision=2)}
    running = _actual(
        assignments=assignments,
        workers={"job": (_worker(2),)},
        statuses={"job": tried},
        alarms={alarm.id: alarm},
    )
    assert _decide(_spec(after=1), running) == []
    later = replace(running, statuses={"job": replace(tried, since=NOW - 600)})
    well = _only(SetStatus, _decide(_spec(after=1), later)).status
    assert well.chances == 0
    over = replace(running, statuses={"job": well})
    assert _only(Clear, _decide(_spec(after=1), over)).id == alarm.id


def test_people_are_told_of_a_worker_that_keeps_failing_until_that_is_long_ago() -> None:
    well = {"job": (replace(_worker(), progress=Progress(batches=9)),)}
    recent = tuple(WorkerFailure(NOW - 61 * n, "n1", 1, well=True) for n in range(5, 0, -1))
    failures = Failures("job", 1, 5, "out of memory", "n1", NOW - 61, recent)
    crashing = _actual(failures={"job": failures}, workers=well)
    alarm = _only(Raise, _decide(_spec(), crashing)).alarm
    assert (alarm.kind, alarm.reason) == (
        "job-failing",
        "its worker has failed 5 times, last on n1: out of memory",
    )
    known = replace(crashing, alarms={alarm.id: alarm})
    assert _decide(_spec(), known) == []
    calm = replace(known, failures={"job": replace(failures, at=NOW - 601)})
    assert _only(Clear, _decide(_spec(), calm)).id == alarm.id


def test_people_are_told_of_an_executor_that_keeps_failing() -> None:
    def report(failures: int) -> dict[str, NodeReport]:
        one = WorkerFigures(
            "job", "executor-2", 1, 7, 0, "LIVE|waiting", 0.0, 0, NOW, failures, reason="exit code 1"
        )
        return {"n3": NodeReport(NOW, 0.0, 1, 1, 0.0, 0.0, (one,))}

    assert _decide(_spec(), _actual(reports=report(4))) == []
    alarm = _only(Raise, _decide(_spec(), _actual(reports=report(5)))).alarm
    assert (alarm.kind, alarm.subject) == ("executor-failing", "job")
    assert alarm.reason == "executor-2 on n3 has failed 5 times in a row: exit code 1"
    known = _actual(reports=report(0), alarms={alarm.id: alarm})
    assert _only(Clear, _decide(_spec(), known)).id == alarm.id


def test_an_update_that_fails_on_its_first_record_falls_back_though_the_old_worker_has_stopped() -> None:
    spec = _spec(generation=2, before=Code("a" * 64, "job.py", {}, 1))
    failures = Failures("job", 2, 4, "ZeroDivisionError", "n1", NOW)
    actual = _actual(
        assignments={"job": _assignment(spec, revision=2)}, workers={}, failures={"job": failures}
    )
    actions = _decide(spec, actual)
    back = _only(UpdateSpec, actions).spec
    assert (back.generation, back.after, back.before) == (1, 2, None)
    assert _only(Raise, actions).alarm.kind == "update-refused"


def test_code_that_had_run_well_before_it_failed_is_not_taken_back() -> None:
    spec = _spec(generation=2, before=Code("a" * 64, "job.py", {}, 1))
    recent = (WorkerFailure(NOW, "n1", 2, well=True), *(WorkerFailure(NOW, "n1", 2) for _ in range(4)))
    failures = Failures("job", 2, 5, "it died", "n1", NOW, recent)
    actual = _actual(
        assignments={"job": _assignment(spec, revision=2)}, workers={}, failures={"job": failures}
    )
    back = [action.spec.generation for action in _decide(spec, actual) if isinstance(action, UpdateSpec)]
    assert 1 not in back


def test_an_update_whose_worker_keeps_dying_falls_back_while_the_old_one_runs() -> None:
    spec = _spec(generation=2, before=Code("a" * 64, "job.py", {}, 1))
    failures = Failures("job", 2, 5, "it died", "n1", NOW)
    actual = _actual(assignments={"job": _assignment(spec, revision=2)}, failures={"job": failures})
    assert _only(UpdateSpec, _decide(spec, actual)).spec.generation == 1


def test_a_moved_job_gets_a_new_revision_there() -> None:
    moved = _only(Assign, _decide(_spec(driver="n3"), _actual())).assignment
    assert (moved.node, moved.revision) == ("n3", 2)
    assert _decide(_spec(driver="n9"), _actual()) == [], "a node that is not there holds nobody"


def test_executors_go_where_the_fewest_are_and_change_without_a_new_revision() -> None:
    resources = Resources(cores=1, memory=GIB, executors=2, executor_cores=1)
    spec = _spec(resources=resources)
    placed = _only(Assign, _decide(spec, ClusterState(nodes=NODES))).assignment
    assert sorted(slot.node for slot in placed.executors) == ["n2", "n3"]
    running = _actual(assignments={"job": placed}, workers={"job": (_worker(1, placed.node),)})
    more = replace(spec, resources=replace(resources, executors=3))
    grown = _only(Assign, _decide(more, running)).assignment
    assert grown.revision == placed.revision
    assert grown.executors[:2] == placed.executors
    assert len({slot.node for slot in grown.executors}) == 3
    fewer = replace(spec, resources=replace(resources, executors=1))
    assert _only(Assign, _decide(fewer, running)).assignment.executors == placed.executors[:1]


def test_executors_of_a_lost_node_move_if_there_is_room() -> None:
    resources = Resources(cores=1, memory=GIB, executors=2, executor_cores=2)
    spec = _spec(resources=resources)
    placed = _only(Assign, _decide(spec, ClusterState(nodes=NODES))).assignment
    lost = next(slot for slot in placed.executors if slot.node != placed.node)
    nodes = {name: node for name, node in NODES.items() if name != lost.node}
    actual = _actual(
        nodes=nodes,
        assignments={"job": placed},
        workers={"job": (_worker(1, placed.node),)},
        absent_since={lost.node: NOW - 9},
    )
    moved = _only(Assign, _decide(spec, actual)).assignment
    assert moved.revision == placed.revision
    assert [slot.ordinal for slot in moved.executors] == [slot.ordinal for slot in placed.executors]
    assert all(slot.node in nodes for slot in moved.executors)
    full = replace(actual, nodes={name: replace(node, cores=1) for name, node in nodes.items()})
    kept = [action for action in _decide(spec, full) if isinstance(action, Assign)]
    assert not kept, "the node may come back"


def test_whichever_worker_comes_first_begins_from_scratch() -> None:
    spec = _spec(fresh=True, forget=4, after=4)
    status = {"job": _status("PENDING", 4)}
    first = _only(Assign, _decide(spec, ClusterState(nodes=NODES, statuses=status))).assignment
    assert (first.revision, first.fresh, first.forget) == (5, True, 4)
    two = {name: NODES[name] for name in ("n2", "n3")}
    lost = _actual(nodes=two, assignments={"job": first}, workers={}, absent_since={"n1": NOW - 9})
    second = _only(Assign, _decide(spec, lost)).assignment
    assert (second.revision, second.fresh, second.forget) == (6, True, 4), "what revision 5 has done stays"


def test_what_nobody_wants_is_unassigned() -> None:
    assert _only(Unassign, _decide(None, _actual())).job == "job"


def test_the_same_snapshot_gives_the_same_decision() -> None:
    actual = ClusterState(nodes=dict(reversed(NODES.items())))
    assert _decide(_spec(), actual) == _decide(_spec(), ClusterState(nodes=NODES))


def test_a_job_that_is_over_stays_so_whatever_its_last_worker_leaves() -> None:
    for phase in ("ENDED", "FAILED"):
        status = _status(phase, 2, "for a reason")
        late = Result("job", 1, "stopped", "the job was ended", NOW)
        alarm = Alarm("job-failed.job", "job-failed", "job", "for a reason", NOW, {"revision": 2})
        for results in ({}, {"job": late}):
            actual = _actual(
                assignments={}, results=results, statuses={"job": status}, alarms={alarm.id: alarm}
            )
            assert _decide(_spec(wanted="ended", drain=True), actual) == []
            assert _decide(_spec(), actual) == []


def test_that_a_job_has_failed_is_told_even_if_the_leader_that_found_it_is_gone() -> None:
    status = _status("FAILED", 2, "its worker has died 5 times")
    alarm = _only(Raise, _decide(_spec(), _actual(assignments={}, statuses={"job": status}))).alarm
    assert (alarm.subject, alarm.reason) == ("job", "its worker has died 5 times")


def test_a_job_is_not_moved_back_to_the_node_on_which_it_keeps_dying() -> None:
    failures = Failures("job", 1, 3, "no space left", "n1", NOW)
    actions = _decide(_spec(driver="n1"), _actual(failures={"job": failures}))
    moved = _only(Assign, actions).assignment
    spec = _only(UpdateSpec, actions).spec
    assert moved.node != "n1"
    after = _actual(
        failures={"job": failures},
        assignments={"job": moved},
        workers={},
        statuses={"job": _status("STARTING", 2)},
    )
    assert not [action for action in _decide(spec, after) if isinstance(action, Assign)]


def test_what_became_of_the_code_before_is_no_reason_to_give_up_an_update() -> None:
    old = Code("a" * 64, "job.py", {}, 1)
    spec = _spec(bundle="b" * 64, generation=2, before=old)
    refused = Result("job", 1, "refused", "no such column", NOW)
    failures = Failures("job", 1, 5, "it died", "n1", NOW)
    for actual in (_actual(results={"job": refused}), _actual(failures={"job": failures})):
        actions = _decide(spec, actual)
        assert _only(Assign, actions).assignment.bundle == "b" * 64
        assert not [action for action in actions if isinstance(action, UpdateSpec)]


def test_code_that_has_the_number_of_refused_code_is_other_code() -> None:
    refused = _assignment(bundle="b" * 64, generation=2)
    spec = _spec(bundle="c" * 64, generation=2, after=1)
    placed = _only(Assign, _decide(spec, _actual(assignments={"job": refused}))).assignment
    assert (placed.bundle, placed.revision) == ("c" * 64, 2)


def test_other_parameters_are_a_new_worker_and_a_refusal_goes_back_to_those_before() -> None:
    before = Code("a" * 64, "job.py", {}, 1, {"since": "2025"}, {"MODE": "a"})
    spec = _spec(generation=2, params={"since": "2026"}, env={"MODE": None}, before=before)
    running = _assignment(generation=1, params=before.params, env=before.env)
    [assign] = [
        one for one in _decide(spec, _actual(assignments={"job": running})) if isinstance(one, Assign)
    ]
    assert (assign.assignment.params, assign.assignment.env) == ({"since": "2026"}, {"MODE": None})
    assert assign.assignment.revision == 2
    refused = Result("job", 2, "refused", "job.py, line 3: ValueError", NOW)
    actual = _actual(assignments={"job": assign.assignment}, results={"job": refused})
    [back] = [one for one in _decide(spec, actual) if isinstance(one, UpdateSpec)]
    assert (back.spec.params, back.spec.env, back.spec.generation) == ({"since": "2025"}, {"MODE": "a"}, 1)
    again = _spec(generation=2, params={"since": "2027"}, before=before)
    [assign] = [
        one
        for one in _decide(again, _actual(assignments={"job": assign.assignment}))
        if isinstance(one, Assign)
    ]
    assert assign.assignment.params == {"since": "2027"}, "the number of the generation is given out again"


def test_a_second_refused_update_is_told_again_and_a_good_one_takes_it_back() -> None:
    old = Code("0" * 64, "job.py", {}, 1)
    bad = _spec(generation=2, before=old)

    def refused(revision: int, **alarms: Alarm) -> Alarm:
        result = Result("job", revision, "refused", f"reason {revision}", NOW)
        actual = _actual(
            assignments={"job": _assignment(bad, revision=revision)},
            results={"job": result},
            alarms={alarm.id: alarm for alarm in alarms.values()},
        )
        actions = _decide(bad, actual)
        told = _only(Raise, actions)
        assert actions.index(told) < actions.index(_only(UpdateSpec, actions)), "told before it is forgotten"
        return told.alarm

    first = refused(2)
    second = refused(4, first=first)
    assert (second.id, second.reason, second.evidence["revision"]) == (first.id, "reason 4", 4)

    def cleared(spec: JobSpec | None) -> bool:
        actions = _decide(spec, _actual(alarms={second.id: second}))
        return any(isinstance(action, Clear) and action.id == second.id for action in actions)

    back = _spec(bundle=old.bundle)
    assert not cleared(back), "it runs the code before"
    assert not cleared(_spec(bundle="c" * 64, before=old)), "nobody knows yet whether it will run"
    assert cleared(_spec(bundle="c" * 64))
    assert cleared(replace(back, submitted=NOW + 1))
    assert cleared(None)


def test_a_lost_node_without_work_is_told_of() -> None:
    idle = _actual(nodes={"n1": NODES["n1"]}, absent_since={"n2": NOW - 3})
    assert _decide(_spec(), idle) == []
    told = _only(Raise, _decide(_spec(), replace(idle, absent_since={"n2": NOW - 4}))).alarm
    assert (told.id, told.reason) == ("node-lost.n2", "node n2 is gone; nothing was assigned to it")


def test_the_alarm_of_a_job_that_ends_at_its_second_chance_is_cleared() -> None:
    alarm = Alarm("job-failed.job", "job-failed", "job", "why", NOW, {"revision": 1})
    ended = replace(_status("ENDED", 2), chances=1)
    actual = _actual(assignments={}, workers={}, statuses={"job": ended}, alarms={alarm.id: alarm})
    assert _only(Clear, _decide(_spec(after=1), actual)).id == alarm.id


def test_a_job_that_fails_while_it_is_drained_is_tried_again_as_it_says() -> None:
    failed = _actual(
        assignments={},
        workers={},
        failures={"job": Failures("job", 1, 8, "it died", "n1", NOW - 601)},
        statuses={"job": replace(_status("FAILED"), since=NOW - 600)},
    )
    draining = _spec(wanted="ended", drain=True)
    assert _only(UpdateSpec, _decide(draining, failed)).spec.after == 1
    killed = [a for a in _decide(replace(draining, drain=False), failed) if isinstance(a, UpdateSpec)]
    assert killed == []


def test_an_update_of_parameters_that_works_out_clears_the_alarm_of_one_that_was_refused() -> None:
    before = Code("a" * 64, "job.py", {}, 1)
    refused = _spec(generation=2, params={"n": "x"}, before=before)
    result = {"job": Result("job", 1, "refused", "n is no number", NOW)}
    assignments = {"job": _assignment(refused, params={"n": "x"})}
    actions = _decide(refused, _actual(assignments=assignments, workers={}, results=result))
    alarm, back = _only(Raise, actions).alarm, _only(UpdateSpec, actions).spec
    alarms = {alarm.id: alarm}
    assert [a for a in _decide(back, _actual(alarms=alarms)) if isinstance(a, Clear)] == []
    well = replace(back, generation=2, params={"n": "1"})
    running = _actual(alarms=alarms, assignments={"job": _assignment(well, params={"n": "1"})})
    assert _only(Clear, _decide(well, running)).id == alarm.id


def test_a_worker_has_run_well_by_the_clock_of_the_leader_and_not_by_its_own() -> None:
    updated = _spec(generation=2, before=Code("a" * 64, "job.py", {}, 1))
    young = replace(_worker(), since=NOW - 3600)  # Its clock, or the leader's, was set by an hour.
    actual = _actual(assignments={"job": _assignment(updated)}, workers={"job": (young,)})
    assert _decide(updated, replace(actual, up_since={(young.replica, 1, 1): NOW - 599})) == []
    proven = _decide(updated, replace(actual, up_since={(young.replica, 1, 1): NOW - 600}))
    assert _only(UpdateSpec, proven).spec.before is None


def test_people_are_told_of_old_code_that_keeps_failing_while_new_code_has_no_node() -> None:
    wanted = _spec(generation=2, after=1, resources=Resources(cores=8, memory=GIB))
    failures = {"job": Failures("job", 1, 5, "it died", "n1", NOW)}
    actual = _actual(workers={}, failures=failures)
    assert _only(Raise, _decide(wanted, actual)).alarm.kind == "job-failing"


def test_old_code_that_has_failed_too_often_waits_for_room_for_what_is_wanted() -> None:
    wanted = _spec(generation=2, after=1, resources=Resources(cores=8, memory=GIB))
    failures = {"job": Failures("job", 1, 8, "it died", "n1", NOW)}
    given_up = _actual(workers={}, failures=failures)
    actions = _decide(wanted, given_up)
    assert _only(Unassign, actions).job == "job"
    status = _only(SetStatus, actions).status
    assert status.phase == "PENDING"
    assert "no node can take it" in status.reason
    assert "its worker has failed 8 times" in status.reason
    after = replace(given_up, assignments={}, statuses={"job": status})
    assert not [a for a in _decide(wanted, after) if isinstance(a, Assign | Unassign)]
    grown = replace(after, nodes={**NODES, "n4": _node("n4", 8)})
    assert _only(Assign, _decide(wanted, grown)).assignment.node == "n4"
    runs_on = _actual(failures=failures)
    assert not [a for a in _decide(wanted, runs_on) if isinstance(a, Unassign)], "its worker is up again"


def test_a_job_is_not_over_because_a_worker_whose_assignment_was_taken_back_has_stopped() -> None:
    stopped = {"job": Result("job", 1, "stopped", "the job was ended", NOW)}
    waiting = _actual(assignments={}, workers={}, results=stopped, statuses={"job": _status("PENDING")})
    assert _only(Assign, _decide(_spec(), waiting)).assignment.revision == 2
    assert _only(SetStatus, _decide(_spec(wanted="ended"), waiting)).status.phase == "ENDED"


def test_refused_code_is_not_tried_again_while_what_is_wanted_has_no_node() -> None:
    wanted = _spec(after=1, resources=Resources(cores=8, memory=GIB))
    poison = _assignment(generation=2, bundle="b" * 64)
    refused = {"job": Result("job", 1, "refused", "its code is poison", NOW)}
    actual = _actual(assignments={"job": poison}, workers={}, results=refused)
    actions = _decide(wanted, actual)
    assert _only(Unassign, actions).job == "job"
    status = _only(SetStatus, actions).status
    assert (status.phase, "refused: its code is poison" in status.reason) == ("PENDING", True)
    after = replace(actual, assignments={}, statuses={"job": status})
    assert not [a for a in _decide(wanted, after) if isinstance(a, Assign | Unassign)]


def test_a_worker_that_runs_on_keeps_its_executors_when_the_node_of_its_successor_is_lost() -> None:
    asked = Resources(cores=2, memory=GIB, executors=1, executor_cores=2, executor_memory=GIB)
    slots = (ExecutorSlot(1, "n1", 2, GIB),)
    wanted = _spec(generation=2, resources=asked)
    assigned = _assignment(wanted, revision=2, node="n2", executors=slots, executors_asked=1)
    lost = _actual(nodes={"n1": _node("n1", 3)}, assignments={"job": assigned}, absent_since={"n2": NOW - 9})
    actions = _decide(wanted, lost)
    assert not [action for action in actions if isinstance(action, Unassign | Assign)]
    status = _only(SetStatus, actions).status
    assert (status.phase, status.reason.startswith("on n1, until revision 2 is ready")) == ("RUNNING", True)
    dead = replace(lost, workers={})
    assert _only(Unassign, _decide(wanted, dead)).job == "job", "then nobody needs the executors"


def test_a_drain_completes_though_another_change_has_no_node() -> None:
    """The code that runs has processed everything: it is not started again for the code that is wanted."""
    wanted = _spec(
        generation=2, after=1, wanted="ended", drain=True, resources=Resources(cores=8, memory=GIB)
    )
    drained = {"job": Result("job", 1, "drained", "all is processed", NOW)}
    assignments = {"job": _assignment(until="drained")}
    actual = _actual(assignments=assignments, workers={}, results=drained)
    assert _only(SetStatus, _decide(wanted, actual)).status.phase == "ENDED"
    for other in ({"restarts": 1}, {"fresh": True, "forget": 1}, {"wanted": "running", "drain": False}):
        status = _only(SetStatus, _decide(replace(wanted, **other), actual)).status
        assert status.phase != "ENDED", other
