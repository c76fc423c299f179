"""The worker state model of SpeedStream (IV.B), as the rules that a supervisor carries out.

The state of a place is P|Q. P describes the store: VOID, nothing is assigned; STANDBY, something is assigned
and no process was started for it yet; LIVE, one was. Q describes the node: waiting, no process; running, a
process. The state is computed at each step and never stored, so that a change of an assignment changes P at
once, in any state.

A rule has an action for a state, some facts that hold, and others that do not. For each state and any facts,
exactly one rule of a table applies. :mod:`penstock.cluster.worker_supervision` observes the facts, finds the
rule and carries it out; it has no other conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar


class P(Enum):
    """Whether something is assigned to a place, and was started."""

    VOID = "VOID"
    STANDBY = "STANDBY"
    LIVE = "LIVE"


class Q(Enum):
    """Whether a place has a process."""

    WAITING = "waiting"
    RUNNING = "running"

    def __str__(self) -> str:
        return self.value


class State(NamedTuple):
    """The state of a place."""

    p: P
    q: Q

    def __str__(self) -> str:
        return f"{self.p.value}|{self.q.value}"


class WorkerAction(Enum):
    """The actions of a supervisor. The first five are the paper's."""

    KEEP = "KEEP"
    """Nothing."""
    NEW = "NEW"
    """Start a process."""
    CODE_CHANGED = "CODE_CHANGED"
    """Start a process of other code beside the one that runs."""
    TASK_CHANGED = "TASK_CHANGED"
    """Start a process of the same code beside the one that runs."""
    GONE = "GONE"
    """Ask a process to end."""
    KILL = "KILL"
    """End a process at once: a death."""
    RECORD = "RECORD"
    """Record the failure of a process that has died."""


STARTS = (WorkerAction.NEW, WorkerAction.CODE_CHANGED, WorkerAction.TASK_CHANGED)
"""The actions that start a process."""


class Fact(Enum):
    """An observation besides the state."""

    ASSIGNED = "assigned"
    """The job is assigned, to this node or another."""
    OTHER_CODE = "other code"
    """A running process has another generation of the code than the assignment."""
    ASKED = "asked to end"
    """The process was asked to end."""
    LEFT = "left"
    """The last process reported that it drained or was refused: it is not restarted."""
    OVERDUE = "overdue"
    """The process was asked to end, or has left, too long ago without an effect."""
    RECORDED = "recorded"
    """The failure of the last process is recorded."""
    GIVEN_UP = "given up"
    """There were too many failures in a row, and no other worker continues the job."""
    RETRY_DUE = "retry due"
    """The back-off after the last failure is over."""
    AT_WORK = "at work"
    """The process has taken over its job, and does not stop yet."""
    LATE = "late"
    """Its main loop has written no heartbeat for too long."""
    SILENT = "silent"
    """The process has given no sign of life for too long."""
    WANTED = "wanted"
    """The executor is assigned to this node, with its size."""
    NEEDED = "needed"
    """The executor's driver is superseded, ends its last batch, or is not in the store for a moment."""
    DRIVER_UP = "driver up"
    """The assigned driver is in the store."""
    STARTED = "started"
    """An executor was started for this driver."""


S = TypeVar("S", State, Q)


@dataclass(frozen=True)
class Rule(Generic[S]):
    """The action in a state, if all facts of ``when`` and none of ``unless`` hold."""

    state: S
    action: WorkerAction
    leads_to: S
    """The state after the action has had its effect."""
    reason: str
    """The reason, with the names of values in braces."""
    when: tuple[Fact, ...] = ()
    unless: tuple[Fact, ...] = ()

    def applies(self, state: S, facts: frozenset[Fact]) -> bool:
        """Return whether this is the rule for a state and the facts that hold."""
        return self.state == state and facts.issuperset(self.when) and facts.isdisjoint(self.unless)


VOID_WAITING = State(P.VOID, Q.WAITING)
VOID_RUNNING = State(P.VOID, Q.RUNNING)
STANDBY_WAITING = State(P.STANDBY, Q.WAITING)
STANDBY_RUNNING = State(P.STANDBY, Q.RUNNING)
LIVE_WAITING = State(P.LIVE, Q.WAITING)
LIVE_RUNNING = State(P.LIVE, Q.RUNNING)

_A, _F = WorkerAction, Fact

DRIVER_RULES: tuple[Rule[State], ...] = (
    Rule(VOID_WAITING, _A.KEEP, VOID_WAITING, "nothing is assigned here"),
    Rule(
        VOID_RUNNING,
        _A.KEEP,
        VOID_RUNNING,
        "its job was moved: it leaves by itself when its successor is ready",
        when=(_F.ASSIGNED,),
    ),
    Rule(
        VOID_RUNNING,
        _A.GONE,
        VOID_WAITING,
        "its job is no longer assigned",
        unless=(_F.ASSIGNED, _F.ASKED),
    ),
    Rule(
        VOID_RUNNING,
        _A.KEEP,
        VOID_RUNNING,
        "it ends its batch",
        when=(_F.ASKED,),
        unless=(_F.ASSIGNED, _F.OVERDUE),
    ),
    Rule(
        VOID_RUNNING,
        _A.KILL,
        VOID_WAITING,
        "a stop was requested {leave:.0f} s ago",
        when=(_F.ASKED, _F.OVERDUE),
        unless=(_F.ASSIGNED,),
    ),
    Rule(STANDBY_WAITING, _A.NEW, LIVE_RUNNING, "{assigned}"),
    Rule(STANDBY_RUNNING, _A.CODE_CHANGED, LIVE_RUNNING, "{assigned}", when=(_F.OTHER_CODE,)),
    Rule(STANDBY_RUNNING, _A.TASK_CHANGED, LIVE_RUNNING, "{assigned}", unless=(_F.OTHER_CODE,)),
    Rule(LIVE_RUNNING, _A.KEEP, LIVE_RUNNING, "the assigned process runs"),
    Rule(
        LIVE_WAITING,
        _A.KEEP,
        LIVE_WAITING,
        "the leader withdraws the assignment when it reads the result",
        when=(_F.LEFT,),
        unless=(_F.OVERDUE,),
    ),
    Rule(
        LIVE_WAITING,
        _A.NEW,
        LIVE_RUNNING,
        "the leader has not acted on the result of attempt {attempt} ({outcome})",
        when=(_F.LEFT, _F.OVERDUE),
    ),
    Rule(
        LIVE_WAITING,
        _A.RECORD,
        LIVE_WAITING,
        "attempt {attempt} of {job} ended: {ended}",
        unless=(_F.LEFT, _F.RECORDED),
    ),
    Rule(
        LIVE_WAITING,
        _A.KEEP,
        LIVE_WAITING,
        "it has failed too often in a row: the leader decides",
        when=(_F.RECORDED, _F.GIVEN_UP),
        unless=(_F.LEFT,),
    ),
    Rule(
        LIVE_WAITING,
        _A.KEEP,
        LIVE_WAITING,
        "its back-off is not over",
        when=(_F.RECORDED,),
        unless=(_F.LEFT, _F.GIVEN_UP, _F.RETRY_DUE),
    ),
    Rule(
        LIVE_WAITING,
        _A.NEW,
        LIVE_RUNNING,
        "attempt {attempt} has failed",
        when=(_F.RECORDED, _F.RETRY_DUE),
        unless=(_F.LEFT, _F.GIVEN_UP),
    ),
)
"""The rules of a driver's place; in VOID|running, of each process that still runs there."""

HANG_RULES: tuple[Rule[Q], ...] = (
    Rule(Q.RUNNING, _A.KEEP, Q.RUNNING, "it works", when=(_F.AT_WORK,), unless=(_F.LATE,)),
    Rule(
        Q.RUNNING,
        _A.KILL,
        Q.WAITING,
        "hung: no heartbeat for {late:.0f} s",
        when=(_F.AT_WORK, _F.LATE),
    ),
    Rule(
        Q.RUNNING,
        _A.KEEP,
        Q.RUNNING,
        "its start or its stop makes progress",
        unless=(_F.AT_WORK, _F.LATE, _F.SILENT),
    ),
    Rule(
        Q.RUNNING,
        _A.KILL,
        Q.WAITING,
        "hung: no sign of life for {silent:.0f} s {doing}",
        when=(_F.SILENT,),
        unless=(_F.AT_WORK,),
    ),
    Rule(
        Q.RUNNING,
        _A.KILL,
        Q.WAITING,
        "hung: its process is alive, but made no progress for {late:.0f} s {doing}",
        when=(_F.LATE,),
        unless=(_F.AT_WORK, _F.SILENT),
    ),
)
"""The rules of each process of a driver, for any P, before those of its place. A KILL here is a death."""

EXECUTOR_RULES: tuple[Rule[Q], ...] = (
    Rule(Q.RUNNING, _A.KEEP, Q.RUNNING, "the assigned process runs", when=(_F.WANTED,)),
    Rule(
        Q.RUNNING,
        _A.KEEP,
        Q.RUNNING,
        "its driver needs it, and ends it",
        when=(_F.NEEDED,),
        unless=(_F.WANTED,),
    ),
    Rule(
        Q.RUNNING,
        _A.GONE,
        Q.WAITING,
        "it is no longer wanted on this node",
        when=(_F.ASSIGNED,),
        unless=(_F.WANTED, _F.NEEDED, _F.ASKED),
    ),
    Rule(
        Q.RUNNING,
        _A.GONE,
        Q.WAITING,
        "its job has ended",
        unless=(_F.ASSIGNED, _F.WANTED, _F.NEEDED, _F.ASKED),
    ),
    Rule(
        Q.RUNNING,
        _A.KEEP,
        Q.RUNNING,
        "it ends its tasks",
        when=(_F.ASKED,),
        unless=(_F.WANTED, _F.NEEDED, _F.OVERDUE),
    ),
    Rule(
        Q.RUNNING,
        _A.KILL,
        Q.WAITING,
        "a stop was requested {drain:.0f} s ago",
        when=(_F.ASKED, _F.OVERDUE),
        unless=(_F.WANTED, _F.NEEDED),
    ),
    Rule(Q.WAITING, _A.KEEP, Q.WAITING, "its driver is not up", unless=(_F.DRIVER_UP,)),
    Rule(
        Q.WAITING,
        _A.NEW,
        Q.RUNNING,
        "its driver is up",
        when=(_F.DRIVER_UP,),
        unless=(_F.STARTED,),
    ),
    Rule(
        Q.WAITING,
        _A.KEEP,
        Q.WAITING,
        "its back-off is not over",
        when=(_F.DRIVER_UP, _F.STARTED),
        unless=(_F.RETRY_DUE,),
    ),
    Rule(
        Q.WAITING,
        _A.NEW,
        Q.RUNNING,
        "attempt {attempt} has ended: {ended}",
        when=(_F.DRIVER_UP, _F.STARTED, _F.RETRY_DUE),
    ),
)
"""The rules of each executor process (running), and of each assigned executor without one (waiting)."""


def rule_of(rules: Sequence[Rule[S]], state: S, facts: frozenset[Fact]) -> Rule[S]:
    """Return the rule of a table for a state and the facts that hold.

    >>> rule_of(DRIVER_RULES, STANDBY_WAITING, frozenset()).action.value
    'NEW'
    """
    for rule in rules:
        if rule.applies(state, facts):
            return rule
    raise LookupError(f"no rule for {state} with {sorted(fact.value for fact in facts)}")
