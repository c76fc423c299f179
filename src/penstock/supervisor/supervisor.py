"""The supervisor of a node: registers the node, reports its load, and runs the assigned processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.bundles.bundle_cache import RefusedStartError
from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.document_codec import encode
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.worker_documents import Failures, Result, WorkerFigures
from penstock.cluster.worker_supervision import (
    Kill,
    ObservedProcess,
    RecordFailure,
    RequestStop,
    Start,
    SupervisionTimeouts,
    SupervisorStep,
    executor_failures,
    is_executor,
    slot_role,
    state_of,
    supervise,
)
from penstock.coord import store_paths
from penstock.coord.conditional_writes import put_result
from penstock.coord.coordination_store import (
    DisconnectedError,
    ExistsError,
    MissingError,
    Session,
    Store,
)
from penstock.daemon.step_loop import run_step_loop
from penstock.errors import PenstockError, cause_of
from penstock.process_logs.process_log import get_logger
from penstock.replicas.replica_id import ReplicaId, job_in
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.node_mirror import NodeMirror
from penstock.supervisor.node_registration import NodeRegistration

_log = get_logger(__name__)

_DEAD_SECONDS = 60.0
"""How long the job of a dead process is followed: longer than the store keeps a worker's place."""


INSTANCE_ERRORS = (OSError, PenstockError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors with one process, which must not keep a supervisor from handling the others.

An AssertionError is not among them: it shows a mistake in a decision, and no trouble with a process.
"""


class Instances(Protocol):
    """The processes that supervisors of this node have started."""

    def look(self, now: float) -> list[ObservedProcess]:
        """Return all processes, living and dead."""
        ...

    def start(self, start: Start, now: float) -> None:
        """Start a process. Raises RefusedStartError, or another of INSTANCE_ERRORS if a retry may help."""
        ...

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        """Ask a process to end: a worker after its batch, an executor after its tasks."""
        ...

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        """End a process with all its descendants; record the reason if it was alive."""
        ...

    def count(self, instance: ObservedProcess) -> None:
        """Record that the death of a process has been counted."""
        ...

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        """Return the cores and bytes that a process uses with its descendants, and its pid."""
        ...


class Sampler(Protocol):
    """Measures the load of the machine."""

    def sample(self, now: float) -> MachineSample:
        """Return its load."""
        ...


@dataclass(frozen=True)
class SupervisorSettings:
    """The intervals of a supervisor, in seconds."""

    patience: SupervisionTimeouts = field(default_factory=SupervisionTimeouts)
    tick: float = 1.0
    """How often it checks its processes."""
    report: float = 3.0
    """How often it reports the load of the node."""
    again: float = 5.0
    """How long it waits after a start that was refused, or that lacked the store."""
    predecessor: float = 20.0
    """How long it waits for the registration of another to end; a dead one's session ends within 6 s."""


class Supervisor:
    """One supervisor. :meth:`step` does everything that is due; :meth:`run` calls it until stopped."""

    def __init__(
        self,
        store: Store,
        info: NodeInfo,
        instances: Instances,
        machine: Sampler,
        *,
        settings: SupervisorSettings | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        is_dead: Callable[[NodeInfo], bool] = lambda _: False,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        self.info = info
        self.settings = settings or SupervisorSettings()
        self._store = store
        self._instances = instances
        self._machine = machine
        self._clock = clock
        self._monotonic = monotonic
        """The monotonic clock for durations; None if ``clock`` is never set back or forward."""
        self._wake = threading.Event()
        self._mirror = NodeMirror(store, info.name, self._wake.set)
        self._documents = self._mirror.documents
        self._registration = NodeRegistration(
            store, info, predecessor=self.settings.predecessor, is_dead=is_dead, admit=admit
        )
        self._informed = False
        """Whether the assignments have been read: an unread assignment is not a missing one."""
        self._reported = 0.0
        self._not_before: dict[tuple[ReplicaId, str], float] = {}
        """When a start that was refused, or that lacked the store, may be tried again."""
        self._unstarted: dict[tuple[ReplicaId, str], ObservedProcess] = {}
        """The last start of a replica and role, if it created neither a process nor a folder."""
        self._unsaved: dict[ReplicaId, Failures] = {}
        """Failures that could not be written yet."""
        store.listen(lambda session: self._wake.set() if session is not Session.CLOSED else None)

    def run(self, stop: threading.Event) -> None:
        """Work until stopped. Workers continue: the next supervisor of this node finds them.

        Raises NameTakenError if another living supervisor has the name of this one.
        """
        _log.info("supervisor is up", url=self.info.url, cores=self.info.cores)
        run_step_loop(self.step, wake=self._wake, stop=stop, tick=self.settings.tick, clock=self._clock)
        self.leave()
        _log.info("supervisor has stopped")

    def leave(self) -> None:
        """Remove the registration of this session, and the node from the expected nodes."""
        self._registration.leave()

    def step(self, now: float) -> None:
        """Do everything that is due. Raises DisconnectedError after what can be done without the store.

        ``now`` is the time of day; durations are measured by the monotonic clock. Raises NameTakenError if
        another living supervisor has the name of this one.
        """
        moment = now if self._monotonic is None else self._monotonic()
        away: DisconnectedError | None = None
        try:
            seen = self._listen_to_store(moment, now)
        except DisconnectedError as error:
            away = error
            self._registration.disconnected()
            seen = self._seen(moment) if self._registration.is_held else []
        if self._informed and self._registration.is_held:
            for step in self._decide(seen, moment, now):
                self._do(step, moment, now)
            if away is None:
                self._tidy(seen)
        if away is not None:
            raise away
        if self._registration.is_held:
            self._report(moment, now)

    def _seen(self, moment: float) -> list[ObservedProcess]:
        """Return all processes, and the starts that created none."""
        assigned = self._documents.assignments()
        for place, instance in list(self._unstarted.items()):
            assignment = assigned.get(instance.replica)
            if assignment is None or assignment.revision != instance.revision:
                del self._unstarted[place]
        unstarted = [self._unstarted[place] for place in sorted(self._unstarted)]
        return [*self._instances.look(moment), *unstarted]

    def _listen_to_store(self, moment: float, now: float) -> list[ObservedProcess]:
        """Read the changes, and return all processes; none while another supervisor has the name."""
        if self._store.session is not Session.CONNECTED:
            raise DisconnectedError(f"the session is {self._store.session.value}")
        self._registration.check_cluster()
        before = self._registration.session
        if not self._registration.renew(moment, now):
            return []
        if self._registration.session != before:
            self._reported = 0.0
        seen = self._seen(moment)
        self._mirror.refresh(_followed(seen, moment))
        # The first leader may have given the cluster an id just before it assigned something.
        self._registration.check_cluster()
        self._informed = True
        for replica in sorted(self._unsaved):
            self._save(replica, self._unsaved[replica])
            del self._unsaved[replica]
        return seen

    def _decide(self, seen: Sequence[ObservedProcess], moment: float, now: float) -> list[SupervisorStep]:
        failures = {**self._documents.failures(), **self._unsaved}
        assignments, knows = self._documents.assignments(), self._mirror.knows
        unreadable = self._unreadable()
        return supervise(
            self.info.name,
            {one: assignments[one] for one in assignments if knows(one) and str(one) not in unreadable},
            self._documents.workers(),
            failures,
            [one for one in seen if knows(one.replica) and one.job not in unreadable],
            moment,
            self.settings.patience,
            wall=now,
        )

    def _unreadable(self) -> dict[str, str]:
        """Return the jobs and replicas that are not acted on because a document cannot be read, and why."""
        unreadable = self._documents.unreadable
        return {**unreadable(store_paths.FAILURES), **unreadable(store_paths.ASSIGNMENTS)}

    def _do(self, step: SupervisorStep, moment: float, now: float) -> None:
        """Carry out one step. Its errors must not prevent the others."""
        try:
            match step:
                case Start():
                    self._start(step, moment, now)
                case RequestStop(instance, reason):
                    _log.info("requests stop", job=instance.job, role=instance.role, reason=reason)
                    self._instances.ask_to_end(instance, moment)
                case Kill(instance, reason):
                    _log.warning("kills process", job=instance.job, role=instance.role, reason=reason)
                    self._instances.kill(instance, reason)
                case RecordFailure(instance, failures, reason):
                    _log.warning(
                        "worker has failed", job=instance.job, failures=failures.count, reason=reason
                    )
                    self._count(instance, failures)
                    self._wake.set()
        except INSTANCE_ERRORS as error:
            _log.error("a step failed", step=type(step).__name__, job=_job_of(step), reason=cause_of(error))

    def _start(self, start: Start, moment: float, now: float) -> None:
        assignment = start.assignment
        place = (assignment.replica, start.role)
        if moment < self._not_before.get(place, moment):
            return
        self._not_before[place] = moment + self.settings.again
        _log.info(
            "starts process", job=assignment.job, role=start.role, attempt=start.attempt, reason=start.reason
        )
        try:
            self._instances.start(start, moment)
        except RefusedStartError as error:
            _log.error("start refused", job=assignment.job, reason=str(error))
            self._refuse(assignment, str(error), now)
        except DisconnectedError:
            _log.warning("cannot start without the store yet", job=assignment.job)
        except INSTANCE_ERRORS as error:
            said = str(error) if isinstance(error, PenstockError | OSError) else cause_of(error)
            _log.error("start failed", job=assignment.job, role=start.role, reason=said)
            del self._not_before[place]
            # It is treated like a process that has died: counted, and restarted after a back-off.
            self._unstarted[place] = _unstarted(start, f"it could not be started: {said}", moment, now)
            self._wake.set()
        else:
            del self._not_before[place]
            self._unstarted.pop(place, None)

    def _refuse(self, assignment: Assignment, reason: str, now: float) -> None:
        result = Result(assignment.job, assignment.revision, "refused", reason, now)
        with suppress(DisconnectedError):
            put_result(self._store, result)

    def _count(self, instance: ObservedProcess, failures: Failures) -> None:
        place = (instance.replica, instance.role)
        if self._unstarted.get(place) == instance:
            self._unstarted[place] = replace(instance, counted=True)
        else:
            # No descendant of it may run beside its successor.
            self._instances.kill(instance)
            self._instances.count(instance)
        self._unsaved[instance.replica] = failures
        with suppress(DisconnectedError):
            self._save(instance.replica, failures)
            del self._unsaved[instance.replica]
            # Otherwise its session holds its place until it expires.
            with suppress(MissingError):
                self._store.delete(store_paths.worker(instance.job, instance.revision, instance.attempt))

    def _save(self, replica: ReplicaId, failures: Failures) -> None:
        path = f"{store_paths.FAILURES}/{replica}"
        with suppress(ExistsError):  # Another node was faster: its document is replaced below.
            self._store.create(path, encode(failures))
            return
        self._store.set(path, encode(failures))

    def _tidy(self, seen: Sequence[ObservedProcess]) -> None:
        """Remove the places of dead workers that were not replaced, before their sessions expire."""
        held = {
            (worker.job, worker.revision, worker.attempt)
            for workers in self._documents.workers().values()
            for worker in workers
            if worker.node == self.info.name
        }
        for instance in seen:
            place = (instance.job, instance.revision, instance.attempt)
            if not instance.alive and instance.role == "driver" and place in held:
                with suppress(MissingError):
                    self._store.delete(store_paths.worker(*place))

    def _report(self, moment: float, now: float) -> None:
        if moment - self._reported < self.settings.report and self._reported:
            return
        sample = self._machine.sample(moment)
        seen = self._seen(moment)
        shown = [*(instance for instance in seen if instance.alive), *self._waiting(seen)]
        report = NodeReport(
            at=now,
            cpu=sample.cpu,
            memory_used=sample.memory_used,
            memory_total=sample.memory_total,
            network_in=sample.network_in,
            network_out=sample.network_out,
            workers=tuple(self._figures(instance, seen, moment) for instance in shown),
            disk_free=sample.disk_free,
            unreadable={job_in(name): reason for name, reason in self._unreadable().items()},
        )
        path = f"{store_paths.REPORTS}/{self.info.name}"
        known = self._store.get(path)
        if known is not None and known.owner != self._store.session_id:
            with suppress(MissingError):
                self._store.delete(path)
            known = None
        if known is None:
            with suppress(ExistsError):
                self._store.create(path, encode(report), ephemeral=True)
        else:
            with suppress(MissingError):  # The session has ended: the next step registers again.
                self._store.set(path, encode(report))
        self._reported = moment

    def _waiting(self, seen: Sequence[ObservedProcess]) -> list[ObservedProcess]:
        """Return the failed executors that wait for their restart."""
        last: dict[tuple[ReplicaId, str], ObservedProcess] = {}
        for instance in sorted(seen, key=lambda one: (one.revision, one.attempt)):
            if is_executor(instance.role):
                last[instance.replica, instance.role] = instance
        here = {
            (replica, slot_role(slot.ordinal))
            for replica, assignment in self._documents.assignments().items()
            for slot in assignment.executors
            if slot.node == self.info.name
        }
        return [last[place] for place in sorted(last) if place in here and not last[place].alive]

    def _figures(
        self, instance: ObservedProcess, seen: Sequence[ObservedProcess], moment: float
    ) -> WorkerFigures:
        cpu, memory, pid = self._used(instance) if instance.alive else (0.0, 0, 0)
        assignment = self._documents.assignments().get(instance.replica)
        place = [other for other in seen if (other.job, other.role) == (instance.job, instance.role)]
        failures = self._documents.failures().get(instance.replica)
        count = failures.count if failures and failures.revision == instance.revision else 0
        if is_executor(instance.role):
            count = executor_failures(instance, moment, self.settings.patience.failures)
        return WorkerFigures(
            job=instance.job,
            role=instance.role,
            revision=instance.revision,
            attempt=instance.attempt,
            pid=pid,
            state=str(state_of(self.info.name, assignment, instance.role, place)),
            cpu=round(cpu, 3),
            memory=memory,
            since=instance.since or instance.started,
            failures=count,
            reason=instance.reason,
            progress=instance.progress if instance.heartbeat else None,
            joined=instance.joined,
        )

    def _used(self, instance: ObservedProcess) -> tuple[float, int, int]:
        """Return the cores and bytes that a process uses, and its pid; zeros if they cannot be measured."""
        try:
            return self._instances.figures(instance)
        except INSTANCE_ERRORS as error:
            _log.warning("a process cannot be measured", job=instance.job, reason=cause_of(error))
            return (0.0, 0, 0)


def _job_of(step: SupervisorStep) -> str:
    return step.assignment.job if isinstance(step, Start) else step.instance.job


def _unstarted(start: Start, reason: str, moment: float, now: float) -> ObservedProcess:
    """Return a start that created no process as a process that died at once."""
    assignment = start.assignment
    return ObservedProcess(
        assignment.job,
        start.role,
        assignment.revision,
        start.attempt,
        assignment.generation,
        alive=False,
        started=moment,
        app_id=start.driver.app_id if start.driver else "",
        reason=reason,
        died=moment,
        since=now,
        failures=start.failures,
    )


def _followed(seen: Sequence[ObservedProcess], now: float) -> set[ReplicaId]:
    """Return the replicas with a living process, or one that died so recently that its place may exist."""
    return {instance.replica for instance in seen if instance.alive or now - instance.died < _DEAD_SECONDS}
