"""Decides the next step of a worker from the store's state, its own state and the time.

A worker follows its assignment without a master, so that jobs run on while no master leads. It finds its
predecessors and successors among the workers in the store. Each replica of a job has its own assignment and
workers; replicas neither hand over to each other nor wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import WorkerInfo

TAKE_OVER_AFTER = 30.0
"""Seconds that a ready worker waits for its predecessors to stop, or for the store to answer."""

READY = ("ready", "running")
"""The phases of a worker that can continue a job at once."""


class WorkerStep(Enum):
    """The next step of a worker."""

    WAIT = "wait"
    TAKE_OVER = "take over"
    STAND_BY = "stand by"
    JOIN = "join"
    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True)
class WorkerView:
    """The worker's part of the store, as it was last read."""

    assignment: Assignment | None
    others: tuple[WorkerInfo, ...] = ()
    """The other workers of the job, of whatever revision."""
    known: bool = True
    """False until the store was read; until then the assignment is the one of the worker's start."""


@dataclass(frozen=True)
class WorkerSituation:
    """The state of a worker."""

    revision: int
    attempt: int
    generation: int
    running: bool
    """Whether it has taken over; before that it is ready and waits."""
    since: float
    """When it became ready."""
    asked_to_stop: bool = False
    drained: bool = False
    """Whether all input is processed. Only set where the job ends when it is drained."""
    stands_by: bool = False
    """Whether it is a replica that has taken over its folder and waits as the standby."""


@dataclass(frozen=True)
class WorkerDecision:
    """A step and its reason."""

    step: WorkerStep
    reason: str
    outcome: str = ""
    """For a stop: ``stopped``, ``drained`` or ``superseded``."""
    final: bool = False
    """Whether the job ends with it, so that a result has to be written."""
    drain_loops: bool = False
    """Whether records in loops have to be emitted first, because other code continues."""


def ends_when_drained(view: WorkerView) -> bool:
    """Return whether the job ends when all input is processed."""
    return view.assignment is not None and view.assignment.settings.until == "drained"


def runs(view: WorkerView) -> bool:
    """Return whether a replica is active, and not the standby."""
    membership = view.assignment.membership if view.assignment is not None else None
    return membership is None or membership.runs


def decide(me: WorkerSituation, view: WorkerView, now: float) -> WorkerDecision:
    """Return the next step of a worker."""
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
        # Another revision may be the one made active: until that is ready, this worker can run.
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
