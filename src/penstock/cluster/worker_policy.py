"""Decides the next step of a worker from the store's state, its own state and the time.

A worker follows its job's assignment by itself, so that a cluster without a master loses nothing. It finds
its predecessors and successors among the workers in the store. Replicas of a job have an assignment and
workers each, and neither hand over to each other nor wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import WorkerInfo

TAKE_OVER_AFTER = 30.0
"""Seconds that a worker which is ready waits for its predecessors to stop, or for the store to answer."""

READY = ("ready", "running")
"""The phases of a worker that can carry a job on at once."""


class WorkerStep(Enum):
    """What to do."""

    WAIT = "wait"
    TAKE_OVER = "take over"
    STAND_BY = "stand by"
    JOIN = "come in"
    CONTINUE = "run on"
    STOP = "stop"


@dataclass(frozen=True)
class WorkerView:
    """What the store said when it last answered."""

    assignment: Assignment | None
    others: tuple[WorkerInfo, ...] = ()
    """The other workers of the job, of whatever revision."""
    known: bool = True
    """False until it has answered for the first time; the assignment is then the one it was started with."""


@dataclass(frozen=True)
class WorkerSituation:
    """How a worker stands."""

    revision: int
    attempt: int
    generation: int
    running: bool
    """Whether it has taken over; before that it is ready, and waits."""
    since: float
    """When it became ready."""
    asked_to_stop: bool = False
    drained: bool = False
    """Whether all that the sources have is processed. Only asked for where it matters."""
    stands_by: bool = False
    """Whether it is a replica that has taken over its folder, and is to run when another does not."""


@dataclass(frozen=True)
class WorkerDecision:
    """A step and its reason."""

    step: WorkerStep
    reason: str
    outcome: str = ""
    """Of a stop: ``stopped``, ``drained`` or ``superseded``."""
    final: bool = False
    """Whether the job has ended with it, so that a result is to be written."""
    drain_loops: bool = False
    """Whether records on their way through a loop are to be let out first: other code comes next."""


def ends_when_drained(view: WorkerView) -> bool:
    """Whether the job is to end once its sources have no more."""
    return view.assignment is not None and view.assignment.settings.until == "drained"


def runs(view: WorkerView) -> bool:
    """Whether a replica is to run, and not to stand by."""
    membership = view.assignment.membership if view.assignment is not None else None
    return membership is None or membership.runs


def decide(me: WorkerSituation, view: WorkerView, now: float) -> WorkerDecision:
    """Return what a worker does next."""
    if me.asked_to_stop:
        return WorkerDecision(WorkerStep.STOP, "requested by a signal", "stopped")
    if view.assignment is None:
        return WorkerDecision(WorkerStep.STOP, "the job was ended", "stopped", final=True)
    later = _later(me, view)
    able = [worker for worker in later if worker.phase in READY]
    if able:
        reason = f"worker {_name(able[0])} on {able[0].node} is {able[0].phase}"
        return WorkerDecision(WorkerStep.STOP, reason, "superseded", drain_loops=_other_code(me, view))
    if me.stands_by:
        # Whatever revision it is that is told to run: until that one is ready, this one can.
        return (
            WorkerDecision(WorkerStep.JOIN, "made active")
            if runs(view)
            else WorkerDecision(WorkerStep.STAND_BY, "made the standby")
        )
    if not me.running:
        return _before(me, view, now)
    if later or view.assignment.revision > me.revision:
        return WorkerDecision(WorkerStep.CONTINUE, "its successor is not ready")
    if ends_when_drained(view) and me.drained:
        return WorkerDecision(WorkerStep.STOP, "all input is processed", "drained", final=True)
    return WorkerDecision(WorkerStep.CONTINUE, "assigned")


def _before(me: WorkerSituation, view: WorkerView, now: float) -> WorkerDecision:
    waited = now - me.since
    before = sorted(
        (one for one in view.others if one.revision < me.revision and one.phase != "stopped"),
        key=lambda one: (one.revision, one.attempt),
    )
    if view.known and not before:
        return WorkerDecision(WorkerStep.TAKE_OVER, "no worker of an earlier revision runs")
    whom = f"worker {_name(before[-1])} on {before[-1].node}" if before else "the store"
    if waited >= TAKE_OVER_AFTER:
        return WorkerDecision(WorkerStep.TAKE_OVER, f"{whom} has had {TAKE_OVER_AFTER:.0f} s")
    return WorkerDecision(
        WorkerStep.WAIT, f"{whom} has not stopped" if before else f"{whom} has not answered"
    )


def _later(me: WorkerSituation, view: WorkerView) -> list[WorkerInfo]:
    return sorted(
        (one for one in view.others if (one.revision, one.attempt) > (me.revision, me.attempt)),
        key=lambda one: (one.revision, one.attempt),
    )


def _other_code(me: WorkerSituation, view: WorkerView) -> bool:
    return view.assignment is not None and view.assignment.generation != me.generation


def _name(worker: WorkerInfo) -> str:
    return f"{worker.revision}-{worker.attempt}"
