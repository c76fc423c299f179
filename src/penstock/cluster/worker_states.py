"""The worker state model of SpeedStream (IV.B): the states of a worker and their transitions.

A state is P|Q. P is what the store says: VOID, nothing is assigned; STANDBY, something is assigned that no
worker has taken yet; LIVE, it has been taken. Q is what is the case here: waiting, no process; running, there
is one. Two states are steady: in them both sides agree. In the four others an action brings them together.

An event of a client is taken in a steady state only; in any other it waits until the action there is done.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class P(Enum):
    """What the store says of a worker."""

    VOID = "VOID"
    STANDBY = "STANDBY"
    LIVE = "LIVE"


class Q(Enum):
    """What is the case on the node."""

    WAITING = "waiting"
    RUNNING = "running"


class Event(Enum):
    """What a client does."""

    SUBMIT = "submit"
    MIGRATE = "migrate"
    RESUBMIT = "resubmit"
    KILL = "kill"


class WorkerAction(Enum):
    """What a worker's side does about it."""

    KEEP = "KEEP"
    GONE = "GONE"
    NEW = "NEW"
    CODE_CHANGED = "CODE_CHANGED"
    TASK_CHANGED = "TASK_CHANGED"


class State(NamedTuple):
    """Where a worker stands."""

    p: P
    q: Q

    def __str__(self) -> str:
        return f"{self.p.value}|{self.q.value}"


VOID_WAITING = State(P.VOID, Q.WAITING)
VOID_RUNNING = State(P.VOID, Q.RUNNING)
STANDBY_WAITING = State(P.STANDBY, Q.WAITING)
STANDBY_RUNNING = State(P.STANDBY, Q.RUNNING)
LIVE_WAITING = State(P.LIVE, Q.WAITING)
LIVE_RUNNING = State(P.LIVE, Q.RUNNING)

INITIAL = VOID_WAITING
STEADY = (VOID_WAITING, LIVE_RUNNING)

EVENTS: dict[tuple[State, Event], State] = {
    (VOID_WAITING, Event.SUBMIT): STANDBY_WAITING,
    (VOID_WAITING, Event.MIGRATE): STANDBY_WAITING,  # It comes here.
    (VOID_WAITING, Event.RESUBMIT): STANDBY_WAITING,
    (VOID_WAITING, Event.KILL): VOID_WAITING,
    (LIVE_RUNNING, Event.SUBMIT): LIVE_RUNNING,  # There is one of this name already.
    (LIVE_RUNNING, Event.MIGRATE): VOID_RUNNING,  # It leaves here.
    (LIVE_RUNNING, Event.RESUBMIT): STANDBY_RUNNING,
    (LIVE_RUNNING, Event.KILL): VOID_RUNNING,
}
"""The paper's δ, in steady states. In any other, an event changes nothing yet."""

ACTIONS: dict[tuple[State, WorkerAction], State] = {
    (VOID_WAITING, WorkerAction.KEEP): VOID_WAITING,
    (LIVE_RUNNING, WorkerAction.KEEP): LIVE_RUNNING,
    (STANDBY_WAITING, WorkerAction.NEW): LIVE_RUNNING,
    (STANDBY_RUNNING, WorkerAction.CODE_CHANGED): LIVE_RUNNING,
    (STANDBY_RUNNING, WorkerAction.TASK_CHANGED): LIVE_RUNNING,
    (VOID_RUNNING, WorkerAction.GONE): VOID_WAITING,
    (LIVE_WAITING, WorkerAction.NEW): LIVE_RUNNING,  # It has died: a new one takes its place.
}
"""The paper's ε."""


def after_event(state: State, event: Event) -> State:
    """Return where a client's event leads (δ)."""
    return EVENTS.get((state, event), state)


def after_action(state: State, action: WorkerAction) -> State:
    """Return where an action leads (ε); an action that does not belong to a state is an error."""
    return ACTIONS[state, action]


def after_death(state: State) -> State:
    """Return where the death of the process leads, which is nobody's wish."""
    return State(state.p, Q.WAITING)


def action_in(state: State, *, code_changed: bool = False) -> WorkerAction:
    """Return what is to be done in a state.

    >>> action_in(STANDBY_WAITING).value, action_in(LIVE_RUNNING).value
    ('NEW', 'KEEP')
    """
    if state in STEADY:
        return WorkerAction.KEEP
    if state == VOID_RUNNING:
        return WorkerAction.GONE
    if state.q is Q.WAITING:
        return WorkerAction.NEW
    return WorkerAction.CODE_CHANGED if code_changed else WorkerAction.TASK_CHANGED
