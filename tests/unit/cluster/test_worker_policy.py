"""What a worker does next, in every situation there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.cluster.worker_documents import WorkerInfo
from penstock.cluster.worker_policy import (
    TAKE_OVER_AFTER,
    WorkerDecision,
    WorkerSituation,
    WorkerStep,
    WorkerView,
    decide,
    ends_when_drained,
)
from support.settings import make_assignment, replace

PHASES = ("starting", "ready", "running", "stopping", "stopped")
ME = WorkerSituation(revision=5, attempt=2, generation=3, running=True, since=100.0)


def _assignment(revision: int = 5, generation: int = 3, until: str | None = None) -> Assignment:
    return make_assignment("job", 1, revision, generation, "b", "job.py", "n1", 1, 1, until=until)


def _worker(revision: int, attempt: int, phase: str) -> WorkerInfo:
    return WorkerInfo("job", revision, attempt, "n2", 1, phase, 0.0)


def _member(runs: bool) -> Assignment:
    return replace(_assignment(), job="job~1", membership=ReplicaAssignment(1, runs=runs))


OTHERS: tuple[tuple[int, int], ...] = ((4, 9), (5, 1), (5, 3), (6, 1))


def _situations() -> Iterator[tuple[WorkerSituation, WorkerView, float]]:
    """Every situation of a worker whose job has one."""
    for running, asked, drained, known in product((False, True), repeat=4):
        me = replace(ME, running=running, asked_to_stop=asked, drained=drained)
        for assignment in (None, _assignment(), _assignment(until="drained"), _assignment(6, 4)):
            for others in (
                (),
                *(((other, phase),) for other in OTHERS for phase in PHASES),
                *(((OTHERS[0], phase), (OTHERS[3], later)) for phase in PHASES for later in PHASES),
            ):
                view = WorkerView(assignment, tuple(_worker(*other, phase) for other, phase in others), known)
                for waited in (0.0, TAKE_OVER_AFTER, 10 * TAKE_OVER_AFTER):
                    yield me, view, 100.0 + waited


def _situations_of_replicas() -> Iterator[tuple[WorkerSituation, WorkerView, float]]:
    for me, view, now in _situations():
        if view.assignment == _assignment():
            for stands_by, runs in product((False, True), repeat=2):
                its = replace(me, stands_by=stands_by, running=me.running and not stands_by)
                yield its, replace(view, assignment=_member(runs)), now


def test_every_situation_keeps_the_rules() -> None:
    seen: set[WorkerStep] = set()
    count = 0
    for me, view, now in chain(_situations(), _situations_of_replicas()):
        decision = decide(me, view, now)
        seen.add(decision.step)
        _check(me, view, now, decision)
        count += 1
    assert seen == set(WorkerStep)
    assert count > 14_000


def _check(me: WorkerSituation, view: WorkerView, now: float, decision: WorkerDecision) -> None:
    later = [w for w in view.others if (w.revision, w.attempt) > (me.revision, me.attempt)]
    able = [w for w in later if w.phase in ("ready", "running")]
    earlier = [w for w in view.others if w.revision < me.revision and w.phase != "stopped"]
    wanted = view.assignment is not None and view.assignment.revision == me.revision
    assert decision.reason
    assert (decision.step is WorkerStep.STOP) == bool(decision.outcome)
    # A worker that runs never waits, and one that waits never runs on.
    assert decision.step not in (
        (WorkerStep.WAIT, WorkerStep.TAKE_OVER) if me.running else (WorkerStep.CONTINUE,)
    )
    if me.asked_to_stop:
        assert (decision.step, decision.final) == (WorkerStep.STOP, False)
        return
    # The job ends for good only by the word of its assignment.
    if decision.final:
        assert view.assignment is None or (
            me.running and me.drained and ends_when_drained(view) and wanted and not later
        )
    if view.assignment is None:
        assert (decision.step, decision.outcome, decision.final) == (WorkerStep.STOP, "stopped", True)
        return
    if able:
        assert (decision.step, decision.outcome) == (WorkerStep.STOP, "superseded")
        assert decision.drain_loops == (view.assignment.generation != me.generation)
        return
    # Who stands by comes in when it is told to, and at no other time; nobody else does either.
    told = view.assignment.membership is not None and view.assignment.membership.runs
    if me.stands_by:
        assert decision.step is (WorkerStep.JOIN if told else WorkerStep.STAND_BY)
        return
    assert decision.step not in (WorkerStep.STAND_BY, WorkerStep.JOIN)
    # Nobody takes over from a worker that has not had its time.
    if decision.step is WorkerStep.TAKE_OVER and earlier:
        assert now - me.since >= TAKE_OVER_AFTER
    # Nobody waits for ever.
    if not me.running and (now - me.since >= TAKE_OVER_AFTER or (view.known and not earlier)):
        assert decision.step is WorkerStep.TAKE_OVER
    # Nobody leaves a job that has nobody else, however long its successor takes.
    assert decision.outcome != "superseded"


def test_a_store_that_never_answered_is_waited_for_and_not_for_ever() -> None:
    me, view = replace(ME, running=False), WorkerView(_assignment(), known=False)
    assert decide(me, view, 100.0) == WorkerDecision(WorkerStep.WAIT, "the store has not answered")
    assert decide(me, view, 100.0 + TAKE_OVER_AFTER).step is WorkerStep.TAKE_OVER


def test_an_earlier_attempt_of_the_same_revision_is_not_waited_for() -> None:
    """Its supervisor starts another one only when it is dead; the store may not know that yet."""
    view = WorkerView(_assignment(), (_worker(5, 1, "running"),))
    assert decide(replace(ME, running=False), view, 100.0).step is WorkerStep.TAKE_OVER


def test_a_handover_goes_through_with_one_worker_at_a_time() -> None:
    """Old and new worker follow the same view; at no moment both run, and in the end the new one does."""
    phases = {5: "running", 6: "starting"}
    history = []
    for step in range(10):
        now = 100.0 + step
        for revision, other in ((5, 6), (6, 5)):
            phase = phases[revision]
            if phase == "starting":
                phases[revision] = "ready" if step > 2 else phase
                continue
            if phase in ("stopped", "stopping"):
                phases[revision] = "stopped"
                continue
            me = WorkerSituation(revision, 1, revision, running=phase == "running", since=100.0)
            view = WorkerView(_assignment(6, 6), (_worker(other, 1, phases[other]),))
            decision = decide(me, view, now)
            if decision.step is WorkerStep.STOP:
                assert decision.drain_loops
                phases[revision] = "stopping"
            elif decision.step is WorkerStep.TAKE_OVER:
                phases[revision] = "running"
        history.append(dict(phases))
        assert list(phases.values()).count("running") <= 1
    assert history[0] == {5: "running", 6: "starting"}
    assert history[-1] == {5: "stopped", 6: "running"}


def test_a_replica_stands_by_until_it_is_told_to_run() -> None:
    waiting = replace(ME, running=False, stands_by=True)
    assert decide(waiting, WorkerView(_member(runs=False)), 1e6).step is WorkerStep.STAND_BY
    assert decide(waiting, WorkerView(_member(runs=True)), 100.0) == WorkerDecision(
        WorkerStep.JOIN, "made active"
    )
    # Its successor is told to run, and is not up yet: then this one runs until it is.
    later = replace(_member(runs=True), revision=6)
    starting = WorkerView(later, (_worker(6, 1, "starting"),))
    assert decide(waiting, starting, 100.0).step is WorkerStep.JOIN
    assert (
        decide(replace(waiting, stands_by=False, running=True), starting, 100.0).step is WorkerStep.CONTINUE
    )
    ready = WorkerView(later, (_worker(6, 1, "ready"),))
    assert decide(waiting, ready, 100.0).outcome == "superseded"
    assert decide(waiting, WorkerView(None), 100.0).final, "a job that was ended ends for who stands by, too"
    assert (
        decide(replace(waiting, asked_to_stop=True), WorkerView(_member(runs=True)), 100.0).outcome
        == "stopped"
    )


def test_a_replica_that_runs_takes_no_notice_of_a_wish_to_wait() -> None:
    """Who has begun to run can be told to wait by a new revision only."""
    assert decide(ME, WorkerView(_member(runs=False)), 100.0).step is WorkerStep.CONTINUE
