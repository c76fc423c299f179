"""A supervisor's decision: compares the assignments of its node with its processes. Pure.

Each place of a job on a node, its driver or one of its executors, stands in a state of the worker state model
(:mod:`penstock.cluster.worker_states`); the action of that state becomes starts and stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cluster.documents import (
    Assignment,
    ExecutorSlot,
    Failures,
    Progress,
    ReplicaReport,
    WorkerFailure,
    WorkerInfo,
)
from penstock.cluster.failure_policy import FailurePolicy, consecutive_failures
from penstock.cluster.worker_states import P, Q, State, WorkerAction, action_in

DRIVER = "driver"
_EXECUTOR = "executor-"


@dataclass(frozen=True)
class ObservedProcess:
    """A process that was started for a place, as its folder tells.

    Its times are seconds of the machine's own clock, which nobody sets.
    """

    job: str
    role: str
    revision: int
    attempt: int
    generation: int
    alive: bool
    started: float
    app_id: str = ""
    """Of an executor: the application it belongs to."""
    heartbeat: float = 0.0
    """When its main loop last said that it is well; 0 if never."""
    pulse: float = 0.0
    """When its process last showed that it lives while something in it takes time; 0 if never."""
    phase: str = ""
    progress: Progress = field(default_factory=Progress)
    """What it has done, as its last heartbeat says."""
    outcome: str = ""
    """What it said when it left; empty when it was killed or fell."""
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
    """Of an executor: how many before it have failed in a row."""
    joined: ReplicaReport | None = None
    """Of one of several replicas: how it stands among them, as its last heartbeat says."""
    size: tuple[int, int] | None = None
    """Of an executor: its cores and memory; None if an earlier version has started it."""


@dataclass(frozen=True)
class SupervisionTimeouts:
    """How long a supervisor waits, in seconds."""

    start: float = 120.0
    """For a sign of life of a worker that does not run yet, or no more."""
    starting: float = 180.0
    """For a worker whose process lives to get on with its start. Both grow from try to try."""
    heartbeat: float = 30.0
    """For the next heartbeat of one that runs; a worker that is late is hung."""
    leave: float = 90.0
    """For a worker whose job is assigned nowhere any more to leave by itself."""
    drain: float = 60.0
    """For an executor that was asked to drain."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)


@dataclass(frozen=True)
class Start:
    """Start a process."""

    assignment: Assignment
    role: str
    attempt: int
    reason: str
    driver: WorkerInfo | None = None
    """Of an executor: whom it reports to."""
    slot: ExecutorSlot | None = None
    failures: int = 0
    """Of an executor: how many before it have failed in a row."""


@dataclass(frozen=True)
class RequestStop:
    """Ask a process to end: a worker after its batch, an executor after its tasks."""

    instance: ObservedProcess
    reason: str


@dataclass(frozen=True)
class Kill:
    """End a process and all its family at once."""

    instance: ObservedProcess
    reason: str


@dataclass(frozen=True)
class RecordFailure:
    """Note that a worker has failed."""

    instance: ObservedProcess
    failures: Failures
    reason: str


SupervisorStep = Start | RequestStop | Kill | RecordFailure


def slot_role(ordinal: int) -> str:
    """Return the role of an executor.

    >>> slot_role(2)
    'executor-2'
    """
    return f"{_EXECUTOR}{ordinal}"


def is_executor(role: str) -> bool:
    """Whether a role is one of an executor."""
    return role.startswith(_EXECUTOR)


def supervise(
    node: str,
    assignments: Mapping[str, Assignment],
    workers: Mapping[str, Sequence[WorkerInfo]],
    failures: Mapping[str, Failures],
    instances: Sequence[ObservedProcess],
    now: float,
    patience: SupervisionTimeouts | None = None,
    *,
    wall: float | None = None,
) -> list[SupervisorStep]:
    """Return what a supervisor has to do now, in order.

    ``now`` is by the machine's own clock, as the times of instances are; ``wall``, for what others read, is
    in seconds since 1970.
    """
    patience = patience or SupervisionTimeouts()
    wall = now if wall is None else wall
    steps: list[SupervisorStep] = []
    by_job: dict[str, list[ObservedProcess]] = {job: [] for job in assignments}
    for instance in instances:
        by_job.setdefault(instance.job, []).append(instance)
    for job, own in sorted(by_job.items()):
        assignment = assignments.get(job)
        known = tuple(workers.get(job, ()))
        steps += _driver(node, assignment, failures.get(job), known, own, now, wall, patience)
        steps += _executors(node, assignment, known, own, now, patience)
    return steps


def state_of(assigned: int | None, instances: Sequence[ObservedProcess]) -> State:
    """Return where a place stands, given the revision assigned to it (None for none) and its processes."""
    running = any(instance.alive for instance in instances)
    taken = any(instance.revision == assigned for instance in instances)
    p = P.VOID if assigned is None else P.LIVE if taken else P.STANDBY
    if p is P.LIVE:
        running = any(instance.alive for instance in instances if instance.revision == assigned)
    return State(p, Q.RUNNING if running else Q.WAITING)


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
    here = assignment if assignment is not None and assignment.node == node else None
    revision = here.revision if here else None
    known = failures if here and failures and failures.revision > here.after else None
    steps: list[SupervisorStep] = [
        step for instance in drivers if instance.alive for step in _hung(instance, known, now, patience)
    ]
    mine = [instance for instance in drivers if instance.revision == revision]
    state = state_of(revision, drivers)
    changed = here is not None and any(
        instance.generation != here.generation for instance in drivers if instance.alive
    )
    action = action_in(state, code_changed=changed)
    if action is WorkerAction.GONE and assignment is None:
        # Moved jobs leave when their successor is ready, and know that themselves.
        steps += [step for instance in drivers if instance.alive for step in _end(instance, now, patience)]
    elif action is WorkerAction.NEW and here is not None and mine:
        carried_on = any(one.phase == "running" and one.revision < here.revision for one in workers)
        steps += _again(here, mine, known, node, now, wall, patience, carried_on=carried_on)
    elif here is not None and action in (
        WorkerAction.NEW,
        WorkerAction.CODE_CHANGED,
        WorkerAction.TASK_CHANGED,
    ):
        steps.append(Start(here, DRIVER, 1, f"{state}: {action.value}, {here.reason}"))
    return steps


def _hung(
    instance: ObservedProcess, failures: Failures | None, now: float, patience: SupervisionTimeouts
) -> list[SupervisorStep]:
    last = instance.heartbeat or instance.started
    if instance.phase == "running":
        late = now - last > patience.heartbeat
        return [Kill(instance, f"hung: no heartbeat for {now - last:.0f} s")] if late else []
    # Starting Spark, taking a job over and ending a batch take time, on a busy machine a multiple of it.
    tried = consecutive_failures(failures)
    silent = now - max(last, instance.pulse)
    if silent > patience.failures.start_limit(patience.start, tried):
        return [Kill(instance, f"hung: no sign of life for {silent:.0f} s {_doing(instance)}")]
    if now - last > patience.failures.start_limit(patience.starting, tried):
        return [
            Kill(
                instance,
                f"hung: its process is alive, but made no progress for {now - last:.0f} s {_doing(instance)}",
            )
        ]
    return []


def _doing(instance: ObservedProcess) -> str:
    """Return what a worker does that hangs."""
    return "while it stops" if instance.phase in ("stopping", "stopped") else "in its start"


def _end(instance: ObservedProcess, now: float, patience: SupervisionTimeouts) -> list[SupervisorStep]:
    """End a worker whose job is killed. It sees that itself; this is for one that does not."""
    if not instance.asked_to_end:
        return [RequestStop(instance, "its job is no longer assigned")]
    if now - instance.asked_to_end > patience.leave:
        return [Kill(instance, f"a stop was requested {patience.leave:.0f} s ago")]
    return []


def _again(
    assignment: Assignment,
    mine: list[ObservedProcess],
    known: Failures | None,
    node: str,
    now: float,
    wall: float,
    patience: SupervisionTimeouts,
    *,
    carried_on: bool,
) -> list[SupervisorStep]:
    """Start a worker again that has failed, with back-off; one that left as it was told to is not."""
    last = max(mine, key=lambda instance: instance.attempt)
    policy = patience.failures
    if last.outcome in ("drained", "refused"):
        # The leader takes the assignment back when it hears of it. If it does not, it has to be told again.
        if now - last.died <= patience.leave:
            return []
        reason = (
            f"LIVE|waiting: NEW, the leader has not acted on the result of attempt {last.attempt} "
            f"({last.outcome})"
        )
        return [Start(assignment, DRIVER, last.attempt + 1, reason)]
    if not last.counted:
        reason = _reason_of(last)
        failure = WorkerFailure(wall, node, assignment.revision, _ran_well(last, policy))
        noted = policy.after_failure(known, assignment.job, failure, reason)
        return [RecordFailure(last, noted, f"attempt {last.attempt} of {assignment.job} ended: {reason}")]
    # The job of a replica runs on without it, and so does one whose worker before still runs: there is no
    # reason to give it up.
    needed = assignment.membership is None and not carried_on
    given_up = known is not None and policy.gives_up(known) and needed
    if given_up or now < last.died + policy.retry(consecutive_failures(known)):
        return []
    return [
        Start(assignment, DRIVER, last.attempt + 1, f"LIVE|waiting: NEW, attempt {last.attempt} has failed")
    ]


def _reason_of(instance: ObservedProcess) -> str:
    """Return why a worker has ended. One that was asked to and is still wanted was asked by somebody else."""
    if instance.outcome == "stopped":
        return "it was stopped by a signal that its supervisor did not send"
    return instance.reason or "it died"


def _ran_well(instance: ObservedProcess, policy: FailurePolicy) -> bool:
    """Whether a worker that has failed had run well before."""
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
            driver = apps.get(instance.app_id)
            placed = _fits(instance, here.get(instance.role))
            steps += _leave(instance, assignment, placed, driver, now, patience)
    if assignment is None:
        return steps
    current = [worker for worker in apps.values() if worker.revision == assignment.revision]
    for role, slot in sorted(here.items()):
        for worker in sorted(current, key=lambda worker: worker.attempt)[-1:]:
            steps += _executor(assignment, role, slot, worker, own, now, patience)
    return steps


def _fits(instance: ObservedProcess, slot: ExecutorSlot | None) -> bool:
    """Whether an executor is what is wanted in its place."""
    return slot is not None and instance.size in (None, (slot.cores, slot.memory))


def _leave(
    instance: ObservedProcess,
    assignment: Assignment | None,
    placed: bool,
    driver: WorkerInfo | None,
    now: float,
    patience: SupervisionTimeouts,
) -> list[SupervisorStep]:
    """Drain an executor that is wanted here no more.

    It ends by itself when its driver does. Until then a driver that makes way, or that ends its last batch,
    needs it; and a driver that has lost its place in the store for a moment does, too.
    """
    if placed or (assignment is not None and driver is None):
        return []
    if driver is not None and (assignment is None or driver.revision < assignment.revision):
        return []
    if not instance.asked_to_end:
        return [
            RequestStop(
                instance, "its job has ended" if assignment is None else "it is no longer wanted on this node"
            )
        ]
    if now - instance.asked_to_end > patience.drain:
        return [Kill(instance, f"a stop was requested {patience.drain:.0f} s ago")]
    return []


def _executor(
    assignment: Assignment,
    role: str,
    slot: ExecutorSlot,
    worker: WorkerInfo,
    own: list[ObservedProcess],
    now: float,
    patience: SupervisionTimeouts,
) -> list[SupervisorStep]:
    mine = [instance for instance in own if instance.role == role]
    attempt = max((instance.attempt for instance in mine), default=0) + 1
    of_app = [instance for instance in mine if instance.app_id == worker.app_id]
    if any(instance.alive for instance in of_app):
        return []
    last = max(of_app, key=lambda instance: instance.attempt, default=None)
    failed = executor_failures(last, now, patience.failures) if last is not None else 0
    if last is not None and now < last.died + patience.failures.retry(failed):
        return []
    reason = (
        "its driver is up"
        if last is None
        else f"attempt {last.attempt} has ended: {last.reason or 'it died'}"
    )
    return [Start(assignment, role, attempt, reason, worker, slot, failed)]


def executor_failures(instance: ObservedProcess, now: float, policy: FailurePolicy) -> int:
    """Return how many executors of a place have failed in a row, given the last that was started there."""
    until = now if instance.alive else instance.died
    before = 0 if until - instance.started >= policy.window else instance.failures
    return before if instance.alive else before + 1
