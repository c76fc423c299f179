"""A supervisor's decision, case by case."""

from __future__ import annotations

from typing import Any

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot, ReplicaAssignment
from penstock.cluster.worker_documents import Failures, WorkerInfo
from penstock.cluster.worker_supervision import (
    Kill,
    ObservedProcess,
    RecordFailure,
    RequestStop,
    Start,
    SupervisionTimeouts,
    SupervisorStep,
    state_of,
    supervise,
)
from penstock.replicas.replica_id import ReplicaId
from support.settings import make_assignment, replace

JOB = ReplicaId("job")
NOW = 1000.0


def _assignment(**changes: Any) -> Assignment:
    made = make_assignment("job", 1, 3, 1, "a" * 64, "job.py", "n1", 1, 1 << 30, reason="it was submitted")
    return replace(made, **changes)


def _instance(**changes: Any) -> ObservedProcess:
    made = ObservedProcess(
        "job", "driver", 3, 1, 1, alive=True, started=NOW - 50, heartbeat=NOW - 1, phase="running"
    )
    return replace(made, **changes)


def _decide(
    assignment: Assignment | None,
    *instances: ObservedProcess,
    node: str = "n1",
    failures: Failures | None = None,
    workers: tuple[WorkerInfo, ...] = (),
    now: float = NOW,
) -> list[SupervisorStep]:
    return supervise(
        node,
        {JOB: assignment} if assignment else {},
        {JOB: workers} if workers else {},
        {JOB: failures} if failures else {},
        instances,
        now,
    )


def _failures(count: int, revision: int = 3) -> Failures:
    return Failures("job", revision, count, "it died", "n1", NOW)


def test_what_is_assigned_is_started_once() -> None:
    [start] = _decide(_assignment())
    assert isinstance(start, Start)
    assert (start.role, start.attempt) == ("driver", 1)
    assert start.reason == "STANDBY|waiting: NEW, it was submitted"
    assert _decide(_assignment(), _instance(heartbeat=0.0, started=NOW)) == []


def test_what_is_assigned_elsewhere_is_not() -> None:
    assert _decide(_assignment(), node="n2") == []


def test_a_new_revision_is_started_beside_the_old_one() -> None:
    [start] = _decide(_assignment(revision=4), _instance())
    assert isinstance(start, Start)
    assert "STANDBY|running: TASK_CHANGED" in start.reason
    [start] = _decide(_assignment(revision=4, generation=2), _instance())
    assert isinstance(start, Start)
    assert "CODE_CHANGED" in start.reason
    assert (
        _decide(_assignment(revision=4), _instance(), _instance(revision=4, heartbeat=0.0, started=NOW)) == []
    )


def test_a_worker_that_was_moved_away_leaves_by_itself() -> None:
    assert _decide(_assignment(node="n2", revision=4), _instance()) == []


def test_a_worker_of_a_killed_job_is_asked_to_end_and_later_killed() -> None:
    [ask] = _decide(None, _instance())
    assert isinstance(ask, RequestStop)
    assert _decide(None, _instance(asked_to_end=NOW - 10)) == []
    [kill] = _decide(None, _instance(asked_to_end=NOW - 91))
    assert isinstance(kill, Kill)


def test_a_dead_worker_is_counted_and_then_started_again_with_more_and_more_delay() -> None:
    dead = _instance(alive=False, died=NOW, reason="it was killed by SIGKILL")
    [count] = _decide(_assignment(), dead, failures=_failures(1))
    assert isinstance(count, RecordFailure)
    assert (count.failures.count, count.failures.reason) == (2, "it was killed by SIGKILL")
    counted = replace(dead, counted=True)
    assert _decide(_assignment(), counted, failures=_failures(2), now=NOW + 0.9) == []
    [start] = _decide(_assignment(), counted, failures=_failures(2), now=NOW + 1.0)
    assert isinstance(start, Start)
    assert start.attempt == 2


def test_failures_follow_a_worker_to_its_next_node() -> None:
    dead = _instance(alive=False, died=NOW)
    [count] = _decide(_assignment(), dead, failures=_failures(3, revision=2))
    assert isinstance(count, RecordFailure)
    assert count.failures.count == 4


def test_failures_follow_a_worker_through_all_its_revisions_until_somebody_clears_them() -> None:
    dead = _instance(revision=9, alive=False, died=NOW)
    [count] = _decide(_assignment(revision=9, after=4), dead, failures=_failures(3, revision=5))
    assert isinstance(count, RecordFailure)
    assert count.failures.count == 4
    [count] = _decide(_assignment(revision=9, after=8), dead, failures=_failures(5, revision=8))
    assert isinstance(count, RecordFailure)
    assert count.failures.count == 1


def test_too_many_failures_are_enough() -> None:
    dead = _instance(alive=False, died=NOW, counted=True)
    assert _decide(_assignment(), dead, failures=_failures(8), now=NOW + 1e6) == []
    [start] = _decide(_assignment(), dead, failures=_failures(7), now=NOW + 30)
    assert isinstance(start, Start)


def test_a_worker_is_not_given_up_while_one_of_an_earlier_revision_carries_the_job_on() -> None:
    dead = _instance(alive=False, died=NOW, counted=True)
    before = WorkerInfo("job", 2, 1, "n2", 1, "running", NOW)
    [start] = _decide(_assignment(), dead, failures=_failures(8), workers=(before,), now=NOW + 30)
    assert isinstance(start, Start)


def test_a_worker_that_left_as_it_was_told_is_not_started_again() -> None:
    for outcome in ("drained", "refused"):
        assert _decide(_assignment(), _instance(alive=False, died=NOW, outcome=outcome)) == []


def test_a_worker_whose_last_word_nobody_has_heard_is_started_to_say_it_again() -> None:
    for outcome in ("drained", "refused"):
        left = _instance(alive=False, died=NOW - SupervisionTimeouts().leave - 1, outcome=outcome)
        [start] = _decide(_assignment(), left)
        assert isinstance(start, Start)
        assert start.attempt == 2


def test_a_worker_that_a_signal_stopped_has_failed_and_is_started_again_after_the_back_off() -> None:
    stopped = _instance(alive=False, died=NOW, outcome="stopped", reason="asked to by a signal")
    [count] = _decide(_assignment(), stopped, failures=_failures(1))
    assert isinstance(count, RecordFailure)
    assert (count.failures.count, count.failures.reason) == (
        2,
        "it was stopped by a signal that its supervisor did not send",
    )
    counted = replace(stopped, counted=True)
    assert _decide(_assignment(), counted, failures=_failures(2), now=NOW + 0.9) == []
    [start] = _decide(_assignment(), counted, failures=_failures(2), now=NOW + 1.0)
    assert isinstance(start, Start)
    assert start.attempt == 2


def test_a_hung_worker_is_killed() -> None:
    [kill] = _decide(_assignment(), _instance(heartbeat=NOW - 31))
    assert isinstance(kill, Kill)
    assert kill.reason == "hung: no heartbeat for 31 s"
    slow = _instance(heartbeat=0.0, started=NOW - 119, phase="")
    assert _decide(_assignment(), slow) == []
    [kill] = _decide(_assignment(), replace(slow, started=NOW - 121))
    assert isinstance(kill, Kill)
    for phase in ("starting", "ready", "stopping"):
        assert _decide(_assignment(), _instance(heartbeat=NOW - 119, phase=phase)) == []
        [kill] = _decide(_assignment(), _instance(heartbeat=NOW - 121, phase=phase))
        assert isinstance(kill, Kill)


def test_a_start_whose_process_lives_is_given_more_time_but_not_for_ever() -> None:
    slow = _instance(started=NOW - 180, heartbeat=NOW - 179, pulse=NOW - 1, phase="starting")
    assert _decide(_assignment(), slow) == []
    [kill] = _decide(_assignment(), replace(slow, heartbeat=NOW - 181))
    assert isinstance(kill, Kill)
    assert kill.reason == "hung: its process is alive, but made no progress for 181 s in its start"
    [kill] = _decide(_assignment(), replace(slow, heartbeat=NOW - 150, pulse=NOW - 121))
    assert isinstance(kill, Kill)
    assert kill.reason == "hung: no sign of life for 121 s in its start"


def test_the_patience_with_a_start_grows_from_try_to_try() -> None:
    slow = _instance(attempt=2, heartbeat=NOW - 239, phase="starting")
    assert _decide(_assignment(), slow, failures=_failures(1)) == []
    [kill] = _decide(_assignment(), replace(slow, heartbeat=NOW - 241), failures=_failures(1))
    assert isinstance(kill, Kill)
    assert _decide(_assignment(), replace(slow, heartbeat=NOW - 479), failures=_failures(2)) == []


def test_a_worker_that_hung_in_its_start_after_a_heartbeat_is_counted() -> None:
    hung = _instance(alive=False, started=NOW - 125, heartbeat=NOW - 121, phase="starting", died=NOW)
    [count] = _decide(_assignment(), replace(hung, reason="hung: no sign of life"), failures=_failures(4))
    assert isinstance(count, RecordFailure)
    assert (count.failures.count, count.failures.reason) == (5, "hung: no sign of life")
    assert not count.failures.recent[-1].well


def test_failures_are_dated_by_the_time_of_day_and_nothing_else_is() -> None:
    dead = _instance(alive=False, died=NOW)
    [count] = supervise("n1", {JOB: _assignment()}, {}, {}, [dead], NOW, wall=1.7e9)
    assert isinstance(count, RecordFailure)
    assert count.failures.at == 1.7e9
    for wall in (1.7e9 - 3600, 1.7e9 + 40):
        steps = supervise("n1", {JOB: _assignment()}, {}, {}, [_instance()], NOW, wall=wall)
        assert steps == [], "a clock that is set does not make a worker hang"
        again = replace(dead, counted=True)
        [start] = supervise(
            "n1", {JOB: _assignment()}, {}, {JOB: _failures(1)}, [again], NOW + 0.5, wall=wall
        )
        assert isinstance(start, Start), "nor does it delay a start"


def test_states_of_the_model() -> None:
    def state(assignment: Assignment | None, *instances: ObservedProcess, role: str = "driver") -> str:
        return str(state_of("n1", assignment, role, instances))

    assert state(None) == "VOID|waiting"
    assert state(None, _instance()) == "VOID|running"
    assert state(_assignment(node="n2"), _instance()) == "VOID|running"
    assert state(_assignment()) == "STANDBY|waiting"
    assert state(_assignment(revision=4), _instance()) == "STANDBY|running"
    assert state(_assignment(), _instance(alive=False)) == "LIVE|waiting"
    assert state(_assignment(), _instance(revision=2), _instance(alive=False)) == "LIVE|waiting"
    assert state(_assignment(), _instance()) == "LIVE|running"
    over = _assignment(node="n2", executors=SLOTS)
    assert state(over, _executor(), role="executor-1") == "LIVE|running"
    assert state(over, _executor(role="executor-2"), role="executor-2") == "VOID|running", "it is for n2"


SLOTS = (ExecutorSlot(1, "n1", 1, 1 << 30), ExecutorSlot(2, "n2", 1, 1 << 30))


def _driver(revision: int = 3, attempt: int = 1, app: str = "app-1") -> WorkerInfo:
    return WorkerInfo("job", revision, attempt, "n2", 1, "ready", NOW, "spark://driver", app)


def _executor(**changes: Any) -> ObservedProcess:
    made = _instance(role="executor-1", app_id="app-1", heartbeat=0.0)
    return replace(made, **changes)


def test_executors_start_where_they_belong_when_their_driver_is_up() -> None:
    over = _assignment(node="n2", executors=SLOTS)
    assert _decide(over) == []
    [start] = _decide(over, workers=(_driver(),))
    assert isinstance(start, Start)
    assert (start.role, start.slot, start.driver) == ("executor-1", SLOTS[0], _driver())
    assert _decide(over, _executor(), workers=(_driver(),)) == []


def test_executors_follow_a_driver_that_was_started_again() -> None:
    over = _assignment(node="n2", executors=SLOTS)
    old = _executor(alive=False, died=NOW)
    [start] = _decide(over, old, workers=(_driver(attempt=2, app="app-2"),))
    assert isinstance(start, Start)
    assert start.attempt == 2


def test_a_dead_executor_is_replaced_with_delay() -> None:
    over = _assignment(node="n2", executors=SLOTS)
    dead = _executor(alive=False, died=NOW)
    assert _decide(over, dead, workers=(_driver(),), now=NOW + 0.4) == []
    [start] = _decide(over, dead, workers=(_driver(),), now=NOW + 0.5)
    assert isinstance(start, Start)


def test_executors_that_are_not_wanted_are_drained() -> None:
    fewer = _assignment(node="n2", executors=SLOTS[1:])
    [ask] = _decide(fewer, _executor(), workers=(_driver(),))
    assert isinstance(ask, RequestStop)
    assert _decide(fewer, _executor(asked_to_end=NOW - 59), workers=(_driver(),)) == []
    [kill] = _decide(fewer, _executor(asked_to_end=NOW - 61), workers=(_driver(),))
    assert isinstance(kill, Kill)


def test_an_executor_of_another_size_makes_way_for_one_of_the_size_that_is_wanted() -> None:
    larger = _assignment(node="n2", executors=(replace(SLOTS[0], memory=2 << 30),))
    small = _executor(size=(1, 1 << 30))
    [ask] = _decide(larger, small, workers=(_driver(),))
    assert isinstance(ask, RequestStop)
    gone = replace(small, alive=False, died=NOW - 1)
    [start] = _decide(larger, gone, workers=(_driver(),))
    assert isinstance(start, Start)
    assert start.slot == larger.executors[0]
    assert _decide(larger, _executor(size=(1, 2 << 30)), workers=(_driver(),)) == []


def test_executors_stay_while_their_driver_needs_them() -> None:
    making_way = _assignment(node="n2", revision=4, executors=SLOTS[1:])
    assert _decide(making_way, _executor(), workers=(_driver(),)) == []
    assert _decide(None, _executor(), workers=(_driver(),)) == [], "its last batch"
    unseen = _assignment(node="n2", executors=SLOTS[1:])
    assert _decide(unseen, _executor()) == [], "the driver has lost the store for a moment"


def test_the_back_off_of_an_executor_grows_however_few_folders_are_kept() -> None:
    over = _assignment(node="n2", executors=SLOTS)
    dead = _executor(alive=False, died=NOW, attempt=9, failures=5)
    assert _decide(over, dead, workers=(_driver(),), now=NOW + 15) == []
    [start] = _decide(over, dead, workers=(_driver(),), now=NOW + 16)
    assert isinstance(start, Start)
    assert (start.attempt, start.failures) == (10, 6)


def test_an_executor_that_ran_for_a_while_begins_to_count_anew() -> None:
    over = _assignment(node="n2", executors=SLOTS)
    dead = _executor(alive=False, started=NOW - 600, died=NOW, failures=5)
    [start] = _decide(over, dead, workers=(_driver(),), now=NOW + 0.5)
    assert isinstance(start, Start)
    assert start.failures == 1


def test_a_replica_that_keeps_dying_is_not_given_up() -> None:
    dead = _instance(alive=False, died=NOW - 40, counted=True)
    assert _decide(_assignment(), dead, failures=_failures(9)) == []
    replica = _assignment(membership=ReplicaAssignment(1))
    [start] = _decide(replica, dead, failures=_failures(9))
    assert isinstance(start, Start)
    assert _decide(replica, replace(dead, died=NOW - 20), failures=_failures(9)) == [], "it is not due yet"
