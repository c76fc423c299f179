"""Decides the steps of a supervisor, given the assignments to its node and the processes on it. Pure.

A job has a place on a node for its driver and for each of its executors. This module observes the state and
the facts of each place and process, looks up their rule in a table of :mod:`penstock.cluster.worker_states`,
and turns its action into a step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.failure_policy import FailurePolicy, consecutive_failures
from penstock.cluster.worker_documents import Failures, Progress, ReplicaReport, WorkerFailure, WorkerInfo
from penstock.cluster.worker_states import (
    DRIVER_RULES,
    EXECUTOR_RULES,
    HANG_RULES,
    STARTS,
    VOID_RUNNING,
    Fact,
    P,
    Q,
    Rule,
    State,
    WorkerAction,
    rule_of,
)
from penstock.replicas.replica_id import AboutReplica, ReplicaId, ReplicaName

DRIVER = "driver"
_EXECUTOR = re.compile(r"executor-[0-9]+")


@dataclass(frozen=True)
class ObservedProcess(AboutReplica):
    """A process that was started for a place, as its folder describes it.

    Its times are seconds of the machine's monotonic clock.
    """

    job: ReplicaName
    role: str
    revision: int
    attempt: int
    generation: int
    alive: bool
    started: float
    app_id: str = ""
    """For an executor: the Spark application that it belongs to."""
    heartbeat: float = 0.0
    """When its main loop last wrote a heartbeat; 0 if never."""
    pulse: float = 0.0
    """When its process last gave a sign of life during a long operation; 0 if never."""
    phase: str = ""
    progress: Progress = field(default_factory=Progress)
    """Its progress, from its last heartbeat."""
    outcome: str = ""
    """The outcome that it wrote when it left; empty if it was killed or crashed."""
    reason: str = ""
    died: float = 0.0
    """When it was found dead."""
    counted: bool = False
    """Whether its death has been counted."""
    asked_to_end: float = 0.0
    """When it was last asked to end; 0 if never."""
    since: float = 0.0
    """When it was started, in seconds since 1970."""
    failures: int = 0
    """For an executor: how many before it failed in a row."""
    joined: ReplicaReport | None = None
    """For a replica: its report, from its last heartbeat."""
    size: tuple[int, int] | None = None
    """For an executor: its cores and memory; None if an earlier version started it."""


@dataclass(frozen=True)
class SupervisionTimeouts:
    """The timeouts of a supervisor, in seconds."""

    start: float = 120.0
    """For a sign of life of a worker that starts or stops."""
    starting: float = 180.0
    """For progress in the start of a worker whose process is alive. Both grow with each attempt."""
    heartbeat: float = 30.0
    """For the next heartbeat of a running worker; a late worker hangs."""
    leave: float = 90.0
    """For a worker whose job is no longer assigned to leave by itself."""
    drain: float = 60.0
    """For an executor that was asked to end."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)


@dataclass(frozen=True)
class Start:
    """Start a process."""

    assignment: Assignment
    role: str
    attempt: int
    reason: str
    driver: WorkerInfo | None = None
    """For an executor: its driver."""
    slot: ExecutorSlot | None = None
    failures: int = 0
    """For an executor: how many before it failed in a row."""


@dataclass(frozen=True)
class RequestStop:
    """Ask a process to end: a worker after its batch, an executor after its tasks."""

    instance: ObservedProcess
    reason: str


@dataclass(frozen=True)
class Kill:
    """End a process and all its descendants at once."""

    instance: ObservedProcess
    reason: str


@dataclass(frozen=True)
class RecordFailure:
    """Record that a worker has failed."""

    instance: ObservedProcess
    failures: Failures
    reason: str


SupervisorStep = Start | RequestStop | Kill | RecordFailure


def slot_role(ordinal: int) -> str:
    """Return the role of an executor.

    >>> slot_role(2)
    'executor-2'
    """
    return f"executor-{ordinal}"


def is_executor(role: str) -> bool:
    """Return whether a role is that of an executor.

    >>> is_executor("executor-2"), is_executor("driver"), is_executor("executor-of-later")
    (True, False, False)
    """
    return _EXECUTOR.fullmatch(role) is not None


def supervise(
    node: str,
    assignments: Mapping[ReplicaId, Assignment],
    workers: Mapping[ReplicaId, Sequence[WorkerInfo]],
    failures: Mapping[ReplicaId, Failures],
    instances: Sequence[ObservedProcess],
    now: float,
    patience: SupervisionTimeouts | None = None,
    *,
    wall: float | None = None,
) -> list[SupervisorStep]:
    """Return the steps of a supervisor, in order.

    ``now`` is by the machine's monotonic clock, like the times of instances; ``wall``, for documents, is in
    seconds since 1970.
    """
    patience = patience or SupervisionTimeouts()
    wall = now if wall is None else wall
    steps: list[SupervisorStep] = []
    by_replica: dict[ReplicaId, list[ObservedProcess]] = {replica: [] for replica in assignments}
    for instance in instances:
        by_replica.setdefault(instance.replica, []).append(instance)
    for replica in sorted(by_replica):
        own, assignment = by_replica[replica], assignments.get(replica)
        known = tuple(workers.get(replica, ()))
        steps += _driver(node, assignment, failures.get(replica), known, own, now, wall, patience)
        steps += _executors(node, assignment, known, own, now, patience)
    return steps


def state_of(
    node: str, assignment: Assignment | None, role: str, instances: Sequence[ObservedProcess]
) -> State:
    """Return the state of a place, given the assignment of its job and the processes of the place."""
    if assignment is None or not _is_here(node, assignment, role):
        return State(P.VOID, _q(instances))
    taken = [instance for instance in instances if instance.revision == assignment.revision]
    return State(P.LIVE, _q(taken)) if taken else State(P.STANDBY, _q(instances))


def _is_here(node: str, assignment: Assignment, role: str) -> bool:
    """Return whether an assignment has a place on a node."""
    if not is_executor(role):
        return assignment.node == node
    return any(slot.node == node and slot_role(slot.ordinal) == role for slot in assignment.executors)


def _q(instances: Sequence[ObservedProcess]) -> Q:
    return Q.RUNNING if any(instance.alive for instance in instances) else Q.WAITING


def _facts(observed: Mapping[Fact, bool]) -> frozenset[Fact]:
    return frozenset(fact for fact, so in observed.items() if so)


def _driver(
    node: str,
    assignment: Assignment | None,
    failures: Failures | None,
    workers: tuple[WorkerInfo, ...],
    own: list[ObservedProcess],
    now: float,
    wall: float,
    patience: SupervisionTimeouts,
) -> list[SupervisorStep]:
    drivers = [instance for instance in own if instance.role == DRIVER]
    alive = [instance for instance in drivers if instance.alive]
    here = assignment if assignment is not None and _is_here(node, assignment, DRIVER) else None
    known = failures if here and failures and failures.revision > here.after else None
    tried = consecutive_failures(known)
    steps = [step for instance in alive for step in _hang(instance, tried, now, patience)]
    state = state_of(node, assignment, DRIVER, drivers)
    mine = [instance for instance in drivers if here is not None and instance.revision == here.revision]
    last = max(mine, key=lambda instance: instance.attempt, default=None)
    place = {
        Fact.ASSIGNED: assignment is not None,
        Fact.OTHER_CODE: here is not None and any(one.generation != here.generation for one in alive),
        Fact.GIVEN_UP: here is not None and _is_given_up(here, known, workers, patience.failures),
    }
    for one in alive if state == VOID_RUNNING else [last]:
        rule = rule_of(DRIVER_RULES, state, _facts(place | _process_facts(one, tried, now, patience)))
        steps += _stop(rule, one, leave=patience.leave)
        if here is not None and rule.action in STARTS:
            attempt = last.attempt if last is not None else 0
            outcome = last.outcome if last is not None else ""
            why = rule.reason.format(assigned=here.reason, attempt=attempt, outcome=outcome)
            steps.append(Start(here, DRIVER, attempt + 1, f"{state}: {rule.action.value}, {why}"))
        if here is not None and last is not None and rule.action is WorkerAction.RECORD:
            ended = _reason_of(last)
            failure = WorkerFailure(wall, node, here.revision, _ran_well(last, patience.failures))
            noted = patience.failures.after_failure(known, here.job, failure, ended)
            why = rule.reason.format(attempt=last.attempt, job=here.job, ended=ended)
            steps.append(RecordFailure(last, noted, why))
    return steps


def _process_facts(
    instance: ObservedProcess | None, tried: int, now: float, patience: SupervisionTimeouts
) -> dict[Fact, bool]:
    """Return the facts about a driver's process: one that is to end, or the last that was started."""
    if instance is None:
        return {}
    return {
        Fact.ASKED: bool(instance.asked_to_end),
        Fact.LEFT: instance.outcome in ("drained", "refused"),
        Fact.OVERDUE: now - (instance.asked_to_end if instance.alive else instance.died) > patience.leave,
        Fact.RECORDED: instance.counted,
        Fact.RETRY_DUE: now >= instance.died + patience.failures.retry(tried),
    }


def _is_given_up(
    here: Assignment, known: Failures | None, workers: tuple[WorkerInfo, ...], policy: FailurePolicy
) -> bool:
    """Return whether a driver has failed too often to be restarted.

    A job with other replicas, or with a running worker of an earlier revision, continues without it: then the
    driver is restarted for as long as it takes.
    """
    carried_on = any(one.phase == "running" and one.revision < here.revision for one in workers)
    return known is not None and policy.gives_up(known) and here.membership is None and not carried_on


def _stop(
    rule: Rule[State] | Rule[Q], instance: ObservedProcess | None, **values: Any
) -> list[SupervisorStep]:
    """Return the step of a rule that ends a process, or none."""
    if instance is None or rule.action not in (WorkerAction.GONE, WorkerAction.KILL):
        return []
    reason = rule.reason.format(**values)
    return [RequestStop(instance, reason) if rule.action is WorkerAction.GONE else Kill(instance, reason)]


def _hang(
    instance: ObservedProcess, tried: int, now: float, patience: SupervisionTimeouts
) -> list[SupervisorStep]:
    """Kill a process of a driver that hangs."""
    last = instance.heartbeat or instance.started
    late, silent = now - last, now - max(last, instance.pulse)
    at_work = instance.phase == "running"
    # Starting Spark, taking a job over and ending a batch take long, and even longer on a busy machine.
    starting = patience.failures.start_limit(patience.starting, tried)
    observed = {
        Fact.AT_WORK: at_work,
        Fact.LATE: late > (patience.heartbeat if at_work else starting),
        Fact.SILENT: silent > patience.failures.start_limit(patience.start, tried),
    }
    doing = "while it stops" if instance.phase in ("stopping", "stopped") else "in its start"
    rule = rule_of(HANG_RULES, Q.RUNNING, _facts(observed))
    return _stop(rule, instance, late=late, silent=silent, doing=doing)


def _reason_of(instance: ObservedProcess) -> str:
    """Return why a worker has ended. A stop that its supervisor did not request came from elsewhere."""
    if instance.outcome == "stopped":
        return "it was stopped by a signal that its supervisor did not send"
    return instance.reason or "it died"


def _ran_well(instance: ObservedProcess, policy: FailurePolicy) -> bool:
    """Return whether a failed worker had run well before."""
    ran = (
        instance.heartbeat - instance.started if instance.heartbeat and instance.phase != "starting" else 0.0
    )
    return policy.ran_well(instance.progress, ran)


def _executors(
    node: str,
    assignment: Assignment | None,
    workers: tuple[WorkerInfo, ...],
    own: list[ObservedProcess],
    now: float,
    patience: SupervisionTimeouts,
) -> list[SupervisorStep]:
    slots = {slot_role(slot.ordinal): slot for slot in (assignment.executors if assignment else ())}
    here = {role: slot for role, slot in slots.items() if slot.node == node}
    apps = {worker.app_id: worker for worker in workers if worker.app_id}
    steps: list[SupervisorStep] = []
    for instance in own:
        if is_executor(instance.role) and instance.alive:
            observed = {
                Fact.ASSIGNED: assignment is not None,
                Fact.WANTED: _fits(instance, here.get(instance.role)),
                Fact.NEEDED: _is_needed(assignment, apps.get(instance.app_id)),
                Fact.ASKED: bool(instance.asked_to_end),
                Fact.OVERDUE: now - instance.asked_to_end > patience.drain,
            }
            rule = rule_of(EXECUTOR_RULES, Q.RUNNING, _facts(observed))
            steps += _stop(rule, instance, drain=patience.drain)
    if assignment is None:
        return steps
    current = [worker for worker in apps.values() if worker.revision == assignment.revision]
    driver = max(current, key=lambda worker: worker.attempt, default=None)
    for role, slot in sorted(here.items()):
        mine = [instance for instance in own if instance.role == role]
        steps += _executor(assignment, role, slot, driver, mine, now, patience.failures)
    return steps


def _fits(instance: ObservedProcess, slot: ExecutorSlot | None) -> bool:
    """Return whether an executor has the node and the size that are assigned."""
    return slot is not None and instance.size in (None, (slot.cores, slot.memory))


def _is_needed(assignment: Assignment | None, driver: WorkerInfo | None) -> bool:
    """Return whether a driver needs its executors although they are no longer assigned.

    They end by themselves when it does. Until then, a driver that is superseded or ends its last batch needs
    them, and so does a driver that is not in the store for a moment.
    """
    if driver is None:
        return assignment is not None
    return assignment is None or driver.revision < assignment.revision


def _executor(
    assignment: Assignment,
    role: str,
    slot: ExecutorSlot,
    driver: WorkerInfo | None,
    mine: list[ObservedProcess],
    now: float,
    policy: FailurePolicy,
) -> list[SupervisorStep]:
    """Start an executor that is assigned here and does not run."""
    of_app = [instance for instance in mine if driver is not None and instance.app_id == driver.app_id]
    if any(instance.alive for instance in of_app):
        return []  # The rules of a running process apply.
    last = max(of_app, key=lambda instance: instance.attempt, default=None)
    failed = executor_failures(last, now, policy) if last is not None else 0
    observed = {
        Fact.DRIVER_UP: driver is not None,
        Fact.STARTED: last is not None,
        Fact.RETRY_DUE: last is not None and now >= last.died + policy.retry(failed),
    }
    rule = rule_of(EXECUTOR_RULES, Q.WAITING, _facts(observed))
    if rule.action not in STARTS:
        return []
    ended = last.reason or "it died" if last is not None else ""
    why = rule.reason.format(attempt=last.attempt if last is not None else 0, ended=ended)
    attempt = max((instance.attempt for instance in mine), default=0) + 1
    return [Start(assignment, role, attempt, why, driver, slot, failed)]


def executor_failures(instance: ObservedProcess, now: float, policy: FailurePolicy) -> int:
    """Return how many executors of a place failed in a row, given the last that was started there."""
    until = now if instance.alive else instance.died
    before = 0 if until - instance.started >= policy.window else instance.failures
    return before if instance.alive else before + 1
