"""A supervisor's decision: what is assigned to its node against the processes it has. Pure.

Each place of a job on a node, its driver or one of its executors, stands in a state of the worker state model
(:mod:`penstock.cluster.worker_states`); the action of that state becomes starts and stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster.documents import Assignment, ExecutorSlot, Failures, WorkerInfo
from penstock.cluster.worker_states import Action, P, Q, State, action_in

DRIVER = "driver"
_EXECUTOR = "executor-"


@dataclass(frozen=True)
class Instance:
    """A process that was started for a place, as its folder tells."""

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
    """When it last said that it is well; 0 if never."""
    phase: str = ""
    outcome: str = ""
    """What it said when it left; empty when it was killed or fell."""
    reason: str = ""
    died: float = 0.0
    """When it was found dead."""
    counted: bool = False
    """Whether its death has been counted."""
    asked_to_end: float = 0.0
    """When it was last asked to end; 0 if never."""


@dataclass(frozen=True)
class Patience:
    """How long a supervisor waits, in seconds."""

    start: float = 120.0
    """For a word of a worker that does not run yet, or no more."""
    heartbeat: float = 30.0
    """For the next heartbeat of one that runs; a worker that is late is hung."""
    leave: float = 90.0
    """For a worker whose job is assigned nowhere any more to leave by itself."""
    drain: float = 60.0
    """For an executor that was asked to drain."""
    stable: float = 60.0
    """A worker that has run this long has run well: its failures are forgotten."""
    forget: float = 600.0
    """A failure that is older counts no more."""
    first_retry: float = 0.5
    longest_retry: float = 30.0
    most_failures: int = 5

    def retry(self, failures: int) -> float:
        """Return how long to wait before the next try.

        >>> [Patience().retry(n) for n in (1, 2, 3, 10, 5000)]
        [0.5, 1.0, 2.0, 30.0, 30.0]
        """
        doubled = min(max(failures - 1, 0), 60)  # Who is never given up is counted without end.
        return float(min(self.first_retry * 2**doubled, self.longest_retry))


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


@dataclass(frozen=True)
class AskToEnd:
    """Ask a process to end: a worker after its batch, an executor after its tasks."""

    instance: Instance
    reason: str


@dataclass(frozen=True)
class Kill:
    """End a process and all its family at once."""

    instance: Instance
    reason: str


@dataclass(frozen=True)
class CountFailure:
    """Note that a worker has died."""

    instance: Instance
    failures: Failures
    reason: str


Step = Start | AskToEnd | Kill | CountFailure


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
    instances: Sequence[Instance],
    now: float,
    patience: Patience | None = None,
) -> list[Step]:
    """Return what a supervisor has to do now, in order."""
    patience = patience or Patience()
    steps: list[Step] = []
    for job in sorted({*assignments, *(instance.job for instance in instances)}):
        own = [instance for instance in instances if instance.job == job]
        assignment = assignments.get(job)
        steps += _driver(node, assignment, failures.get(job), own, now, patience)
        steps += _executors(node, assignment, tuple(workers.get(job, ())), own, now, patience)
    return steps


def state_of(assigned: int | None, instances: Sequence[Instance]) -> State:
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
    own: list[Instance],
    now: float,
    patience: Patience,
) -> list[Step]:
    drivers = [instance for instance in own if instance.role == DRIVER]
    here = assignment if assignment is not None and assignment.node == node else None
    revision = here.revision if here else None
    steps: list[Step] = [
        step for instance in drivers if instance.alive for step in _hung(instance, now, patience)
    ]
    mine = [instance for instance in drivers if instance.revision == revision]
    state = state_of(revision, drivers)
    changed = here is not None and any(
        instance.generation != here.generation for instance in drivers if instance.alive
    )
    action = action_in(state, code_changed=changed)
    if action is Action.GONE and assignment is None:
        # Moved jobs leave when their successor is ready, and know that themselves.
        steps += [step for instance in drivers if instance.alive for step in _end(instance, now, patience)]
    elif action is Action.NEW and here is not None and mine:
        steps += _again(here, mine, failures, node, now, patience)
    elif here is not None and action in (Action.NEW, Action.CODE_CHANGED, Action.TASK_CHANGED):
        steps.append(Start(here, DRIVER, 1, f"{state}: {action.value}, {here.reason}"))
    return steps


def _hung(instance: Instance, now: float, patience: Patience) -> list[Step]:
    last = instance.heartbeat or instance.started
    # Starting Spark, taking a job over and ending a batch take their time, without a word.
    limit = patience.heartbeat if instance.phase == "running" else patience.start
    if now - last <= limit:
        return []
    return [Kill(instance, f"hung: no heartbeat for {now - last:.0f} s")]


def _end(instance: Instance, now: float, patience: Patience) -> list[Step]:
    """End a worker whose job is killed. It sees that itself; this is for one that does not."""
    if not instance.asked_to_end:
        return [AskToEnd(instance, "its job is not assigned any more")]
    if now - instance.asked_to_end > patience.leave:
        return [Kill(instance, f"it was asked to end {patience.leave:.0f} s ago")]
    return []


def _again(
    assignment: Assignment,
    mine: list[Instance],
    failures: Failures | None,
    node: str,
    now: float,
    patience: Patience,
) -> list[Step]:
    """Start a worker again that has died, with back-off; one that left as it was told to is not."""
    last = max(mine, key=lambda instance: instance.attempt)
    if last.outcome in ("drained", "refused"):
        # The leader takes the assignment back when it hears of it. If it does not, it has to be told again.
        if now - last.died <= patience.leave:
            return []
        reason = f"LIVE|waiting: NEW, nobody has heard that attempt {last.attempt} {last.outcome}"
        return [Start(assignment, DRIVER, last.attempt + 1, reason)]
    if last.outcome == "stopped":
        reason = f"LIVE|waiting: NEW, attempt {last.attempt} was stopped by a signal"
        return [Start(assignment, DRIVER, last.attempt + 1, reason)]
    known = failures if failures and failures.revision > assignment.after else None
    if not last.counted:
        well = last.died - last.started >= patience.stable and last.heartbeat > 0
        anew = well or known is None or last.died - known.at >= patience.forget
        count = 1 if anew or known is None else known.count + 1
        reason = last.reason or "it died"
        noted = Failures(assignment.job, assignment.revision, count, reason, node, now)
        return [CountFailure(last, noted, f"attempt {last.attempt} of {assignment.job} ended: {reason}")]
    count = known.count if known else 1
    # The job of a replica runs on without it: there is no reason to give it up.
    given_up = count >= patience.most_failures and assignment.membership is None
    if given_up or now < last.died + patience.retry(count):
        return []
    return [
        Start(assignment, DRIVER, last.attempt + 1, f"LIVE|waiting: NEW, attempt {last.attempt} has died")
    ]


def _executors(
    node: str,
    assignment: Assignment | None,
    workers: tuple[WorkerInfo, ...],
    own: list[Instance],
    now: float,
    patience: Patience,
) -> list[Step]:
    slots = {slot_role(slot.ordinal): slot for slot in (assignment.executors if assignment else ())}
    here = {role: slot for role, slot in slots.items() if slot.node == node}
    apps = {worker.app_id: worker for worker in workers if worker.app_id}
    steps: list[Step] = []
    for instance in own:
        if is_executor(instance.role) and instance.alive:
            driver = apps.get(instance.app_id)
            steps += _leave(instance, assignment, instance.role in here, driver, now, patience)
    if assignment is None:
        return steps
    current = [worker for worker in apps.values() if worker.revision == assignment.revision]
    for role, slot in sorted(here.items()):
        for worker in sorted(current, key=lambda worker: worker.attempt)[-1:]:
            steps += _executor(assignment, role, slot, worker, own, now, patience)
    return steps


def _leave(
    instance: Instance,
    assignment: Assignment | None,
    placed: bool,
    driver: WorkerInfo | None,
    now: float,
    patience: Patience,
) -> list[Step]:
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
            AskToEnd(instance, "its job has ended" if assignment is None else "it is wanted here no more")
        ]
    if now - instance.asked_to_end > patience.drain:
        return [Kill(instance, f"it was asked to end {patience.drain:.0f} s ago")]
    return []


def _executor(
    assignment: Assignment,
    role: str,
    slot: ExecutorSlot,
    worker: WorkerInfo,
    own: list[Instance],
    now: float,
    patience: Patience,
) -> list[Step]:
    mine = [instance for instance in own if instance.role == role]
    attempt = max((instance.attempt for instance in mine), default=0) + 1
    of_app = [instance for instance in mine if instance.app_id == worker.app_id]
    if any(instance.alive for instance in of_app):
        return []
    last = max(of_app, key=lambda instance: instance.attempt, default=None)
    if last is not None and now < last.died + patience.retry(len(of_app)):
        return []
    reason = (
        "its driver is up"
        if last is None
        else f"attempt {last.attempt} has ended: {last.reason or 'it died'}"
    )
    return [Start(assignment, role, attempt, reason, worker, slot)]
