"""A master: takes part in the leader election; the leader makes decisions and writes them to the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

from penstock.cluster.alarms import shortage_since
from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.assignments import listing_changes
from penstock.cluster.cluster_state import ClusterState, Rules, missed, needed_nodes, seen_up
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.job_retention import Retention, retention_actions
from penstock.cluster.leader_actions import (
    Action,
    Assign,
    Clear,
    DropNode,
    DropTombstone,
    Forget,
    KeepRevision,
    Raise,
    RemoveBackupLocation,
    SetBackupLocation,
    SetStatus,
    Unassign,
    UpdateSpec,
)
from penstock.cluster.node_documents import ClusterInfo, Epoch, MasterInfo
from penstock.cluster.placement_request import Placer
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_progress import WorkerKey
from penstock.coord import store_paths
from penstock.coord.coordination_store import (
    Check,
    ConflictError,
    Create,
    Delete,
    ExistsError,
    Operation,
    Session,
    Store,
)
from penstock.coord.leadership import Leadership
from penstock.coord.mirrored_documents import (
    MASTER_DEPTHS,
    MASTER_ROOTS,
    QUIET_ROOTS,
    SINGLE_DOCUMENTS,
    Documents,
    forget_operations,
    revision_operations,
    upsert,
)
from penstock.coord.store_mirror import StoreMirror
from penstock.daemon.step_loop import run_step_loop
from penstock.master.strategy_runner import StrategyChooser
from penstock.process_logs.process_log import get_logger
from penstock.replicas.decisions.replica_set import nodes_used
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.backup_location.location_controller import LocationSettings, locate, location_inputs
from penstock.schedule.job_placer import JobPlacer

_log = get_logger(__name__)

_QUIET_SECONDS = 1.0
"""The least time between two decisions while only the progress of workers changes."""
_CLOCK_SET_SECONDS = 1.0
"""A larger difference between the time of day and the monotonic clock means that the former was set."""
_TOGETHER = 100
"""How many lists of jobs are written in one transaction."""
_READ_BACK_SECONDS = 2.0
"""How long a client's change waits at most until it is read back."""


@dataclass(frozen=True)
class MasterSettings:
    """The settings of a master."""

    rules: Rules = field(default_factory=Rules)
    locating: LocationSettings = field(default_factory=LocationSettings)
    retention: Retention = field(default_factory=Retention)
    tick: float = 2.0
    """Seconds after which a step runs although nothing has changed, for deadlines."""


class Master:
    """One master. :meth:`step` does everything that is due; :meth:`run` calls it on changes."""

    def __init__(
        self,
        store: Store,
        info: MasterInfo,
        *,
        settings: MasterSettings | None = None,
        strategies: StrategyChooser | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        make_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self.info = info
        self._make_id = make_id
        self.settings = settings or MasterSettings()
        self.strategies = strategies or StrategyChooser()
        self.placer: Placer = JobPlacer(self.strategies)
        self._store = store
        self._clock = clock
        self._monotonic = monotonic or clock
        """The monotonic clock for durations; the time of day may be set in between."""
        self._last: tuple[float, float] | None = None
        """The times of the last step by both clocks."""
        self._wake = threading.Event()
        self._hurry = threading.Event()
        """Set while a client waits for a step, which then skips the pause between two steps."""
        self.strategies.asked.wake = self.wake
        self._leadership = Leadership(store, info.name, info.url)
        self._mirror = StoreMirror(
            store, MASTER_ROOTS, self._wake.set, depths=MASTER_DEPTHS, quiet=QUIET_ROOTS
        )
        self.documents = Documents(self._mirror)
        self._absent: dict[str, float] = {}
        self._lacking: dict[str, float] = {}
        """Since when this leader has seen jobs with a part that has no node,"""
        self._seen_up: dict[WorkerKey, float] = {}
        """and workers up that may have to prove that they run well."""
        self._located_for: tuple[object, ...] = ()
        self._locate_at = 0.0
        self._due = True
        """Whether a decision is due although nothing in the store has changed."""
        self._decided = (0, 0.0)
        """How many changes had been read at the last decision, and when that was."""
        self._listed: tuple[object, object] = (None, None)
        """The assignments and the lists of jobs that last matched."""
        self._led = 0
        """The epoch of its last decision; 0 if it did not lead in its last step."""
        self._prepared = False
        self._runs = False
        self._reading = threading.Condition()
        self._begun = 0
        """How many times a refresh of the mirror began,"""
        self._read = 0
        """and the last of these that is complete."""
        store.listen(self._session_changed)

    def wake(self) -> None:
        """Request a step soon, with a decision."""
        self._due = True
        self._wake.set()

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that this master leads, as far as it knows; None if it does not lead."""
        return self._leadership.epoch

    @property
    def connected(self) -> bool:
        """Whether the store is connected."""
        return self._store.session is Session.CONNECTED

    def write(self, operations: list[Operation]) -> None:
        """Write as the leader, and wait until it is read back, so that later requests see it.

        Raises ConflictError, also when another leads by now; what was written instead is read back then.
        """
        try:
            self._leadership.write(operations)
        finally:
            self._read_back(operations)

    def _read_back(self, operations: list[Operation]) -> None:
        for operation in operations:
            self._mirror.mark_stale(operation.path)
        with self._reading:
            wanted = (
                self._begun + 1
            )  # It begins after the node was marked stale, and will: it is woken after this.
        self._hurry.set()
        self.wake()
        if self._runs and self.connected:
            with self._reading:
                self._reading.wait_for(lambda: self._read >= wanted, _READ_BACK_SECONDS)

    def guard(self) -> list[Operation]:
        """Return the checks that fence a leader's writes. Raises ConflictError unless this master leads."""
        return [self._leadership.fence()]

    def run(self, stop: threading.Event) -> None:
        """Work until stopped."""
        _log.info("master is up", url=self.info.url)
        self._runs = True
        run_step_loop(
            self.step,
            wake=self._wake,
            stop=stop,
            tick=self.settings.tick,
            clock=self._clock,
            hurry=self._hurry,
        )
        with suppress(Exception):
            self._leadership.resign()
        _log.info("master has stopped")

    def step(self, now: float) -> None:
        """Do everything that is due. Raises DisconnectedError, after which the next step tries again."""
        if self._store.session is not Session.CONNECTED:
            if self._led:
                _log.warning("connection to the store lost, leadership lost", epoch=self._led)
            self._led = 0
            return
        began = self._monotonic()
        self._adjust_for_clock_change(now, began)
        self._prepare()
        self._announce()
        try:
            epoch = self._leadership.campaign(now, self.wake)
        except ConflictError:  # Two masters raised the epoch at the same time: one has lost.
            epoch = None
            self.wake()
        with self._reading:
            self._begun += 1
            begun = self._begun
        self._mirror.refresh()
        try:
            self._follow_or_lead(epoch, now, began)
        finally:
            # Only after the writes were read back: otherwise a waiting client would get the older state.
            with self._reading:
                self._read = begun
                self._reading.notify_all()

    def _follow_or_lead(self, epoch: Epoch | None, now: float, began: float) -> None:
        if epoch is None:
            if self._led:
                _log.warning("another master leads", epoch=self._led)
            self._led = 0
            return
        if self._led != epoch.number:
            _log.info("this master leads", epoch=epoch.number)
            self._led = epoch.number
            # Nodes may have lost the store together with this master: their grace time starts again.
            self._absent = {}
            self._due = True
        self._create_cluster_id(now)
        # The mirror was read after the step began, long after if this process was paused: a node that is
        # missing since then has not been missing for longer.
        self._decide(epoch, now + max(self._monotonic() - began, 0.0))

    def _adjust_for_clock_change(self, now: float, moment: float) -> None:
        """Shift times by the time of day when that was set, so that no node seems missing for longer."""
        last, self._last = self._last, (now, moment)
        if last is None or self._monotonic is self._clock:
            return
        ahead = (now - last[0]) - (moment - last[1])
        if abs(ahead) >= _CLOCK_SET_SECONDS:
            _log.warning("the clock was set", seconds=round(ahead, 1))
            self._absent = {node: since + ahead for node, since in self._absent.items()}
            self._lacking = {job: since + ahead for job, since in self._lacking.items()}
            self._seen_up = {worker: since + ahead for worker, since in self._seen_up.items()}
            self._locate_at += ahead

    def _create_cluster_id(self, now: float) -> None:
        """Give the cluster its id, once."""
        if self.documents.version(store_paths.CLUSTER) is None:
            with suppress(ConflictError):  # It has an id that was not read yet, or another master leads.
                info = ClusterInfo(self._make_id(), now)
                self._leadership.write([Create(store_paths.CLUSTER, encode(info))])

    def _decide(self, epoch: Epoch, now: float) -> None:
        actual = self.documents.actual(lambda seen: self._missed(seen, now))
        desired = self.documents.jobs()
        news, (before, at) = self.documents.news, self._decided
        if not self._due and news == before and 0.0 <= now - at < _QUIET_SECONDS:
            return
        self._due = False
        self._lacking = shortage_since(self._lacking, desired, actual, now)
        self._seen_up = seen_up(self._seen_up, desired, actual, now)
        actual = replace(actual, shortage_since=self._lacking, up_since=self._seen_up)
        try:
            self._act(epoch, desired, actual, now)
        except BaseException:
            self._due = True
            raise
        self._decided = (news, now)

    def _act(self, epoch: Epoch, desired: Mapping[str, JobSpec], actual: ClusterState, now: float) -> None:
        actions = reconcile(
            desired, actual, now, epoch=epoch.number, placer=self.placer, rules=self.settings.rules
        )
        actions += self._location_actions(desired, actual, now, bool(actions))
        if not actions:
            actions = retention_actions(desired, actual, now, self.settings.retention)
        assigned = dict(actual.assignments)
        for together in _by_subject(actions):
            operations = self._spec_checks(together) + self._node_checks(together, actual)
            try:
                for action in together:
                    operations += self._operations(action, now)
                self._write(operations)
            except ConflictError as error:
                # Something has changed since it was read, or another master leads: decide again.
                _log.warning("write conflict, deciding again", reason=str(error), epoch=epoch.number)
                if error.operation is not None:
                    self._mirror.mark_stale(error.operation.path)
                self.wake()
                return
            for action in together:
                _assign(assigned, action)
                _log.info(
                    "decided",
                    action=type(action).__name__,
                    job=str(getattr(action, "replica", "")) or _job_of(action),
                    reason=action.reason,
                    epoch=epoch.number,
                )
        self._list_jobs(assigned if actions else actual.assignments)
        if actions:
            self._mirror.refresh()
            self.wake()  # The new state may need more actions.

    def _write(self, operations: list[Operation]) -> None:
        """Write as the leader, and mark what was written as stale for the next refresh."""
        self._leadership.write(operations)
        for operation in operations:
            if not isinstance(operation, Check):
                self._mirror.mark_stale(operation.path)

    def _list_jobs(self, assignments: Mapping[ReplicaId, Assignment]) -> None:
        """Update each node's list of assigned jobs, also those that another leader wrote."""
        listed = self.documents.node_jobs()
        if self._listed[0] is assignments and self._listed[1] is listed:
            return
        operations: list[Operation] = []
        for node, jobs in listing_changes(assignments, listed):
            path = f"{store_paths.NODE_JOBS}/{node}"
            operations += (
                [upsert(self.documents, path, encode(jobs))] if jobs is not None else self._remove(path)
            )
        try:
            for start in range(0, len(operations), _TOGETHER):
                self._write(operations[start : start + _TOGETHER])
        except ConflictError as error:
            _log.warning("lists of jobs not written", reason=str(error))
            if error.operation is not None:
                self._mirror.mark_stale(error.operation.path)
            self.wake()
            return
        self._listed = (assignments, listed)

    def _location_actions(
        self, desired: Mapping[str, JobSpec], actual: ClusterState, now: float, unsettled: bool
    ) -> list[Action]:
        """Decide where backups are stored, on changes and periodically, once all jobs have their nodes."""
        inputs = location_inputs(desired, actual)
        if unsettled or (inputs == self._located_for and now < self._locate_at):
            return []
        self._located_for, self._locate_at = inputs, now + self.settings.locating.period
        told = locate(desired, actual, now, self.settings.locating) if inputs else []
        return [action for action in told if action.job not in actual.unreadable]

    def _spec_checks(self, actions: list[Action]) -> list[Operation]:
        """Return checks that the spec of a job is still the one that was decided on.

        Nodes of the store are read one by one. A resubmission writes two of them, and a leader that has read
        only the second would end the job by its old spec.
        """
        if any(isinstance(action, UpdateSpec) for action in actions):
            return []
        path = f"{store_paths.JOBS}/{_job_of(actions[0])}"
        version = self.documents.version(path)
        return [Check(path, version)] if version is not None else []

    def _node_checks(self, actions: list[Action], actual: ClusterState) -> list[Operation]:
        """Return checks that the chosen nodes are still registered as they were at the decision."""
        chosen: set[str] = set()
        for action in actions:
            if isinstance(action, Assign):
                before = actual.assignments.get(action.replica)
                chosen |= nodes_used(action.assignment)
                chosen -= nodes_used(before) if before is not None else set()
        paths_of = [f"{store_paths.NODES}/{name}" for name in sorted(chosen)]
        versions = [(path, self.documents.version(path)) for path in paths_of]
        return [Check(path, version) for path, version in versions if version is not None]

    def _missed(self, seen: ClusterState, now: float) -> dict[str, float]:
        there = {*seen.nodes, *seen.unreadable_nodes}
        expected = {*needed_nodes(seen.assignments), *seen.known}
        self._absent = missed(self._absent, there, expected, now)
        return self._absent

    def _operations(self, action: Action, now: float) -> list[Operation]:
        match action:
            case Assign(assignment):
                return [self._assign(assignment)]
            case Unassign(replica):
                return self._remove(f"{store_paths.ASSIGNMENTS}/{replica}")
            case SetStatus(job, status):
                return [upsert(self.documents, f"{store_paths.STATUS}/{job}", encode(status))]
            case UpdateSpec(spec):
                path = f"{store_paths.JOBS}/{spec.name}"
                return [upsert(self.documents, path, encode(spec, over=self.documents.raw(path)))]
            case Raise(alarm):
                return [upsert(self.documents, f"{store_paths.ALARMS}/{alarm.id}", encode(alarm))]
            case Clear(id):
                return self._remove(f"{store_paths.ALARMS}/{id}")
            case SetBackupLocation(location):
                return [upsert(self.documents, f"{store_paths.LOCATIONS}/{location.job}", encode(location))]
            case RemoveBackupLocation(job):
                return self._remove(f"{store_paths.LOCATIONS}/{job}")
            case Forget(job):
                return forget_operations(self.documents, job, data=False, now=now)
            case KeepRevision(largest):
                return revision_operations(self.documents, largest)
            case DropNode(node):
                return self._remove(f"{store_paths.KNOWN}/{node}")
            case DropTombstone(job):
                return self._remove(f"{store_paths.TOMBSTONES}/{job}")

    def _assign(self, assignment: Assignment) -> Operation:
        path = f"{store_paths.ASSIGNMENTS}/{assignment.job}"
        before = self.documents.one(Assignment, path)
        # Unknown fields of an earlier revision do not apply to a new one.
        same = before is not None and before.revision == assignment.revision
        return upsert(
            self.documents, path, encode(assignment, over=self.documents.raw(path) if same else b"")
        )

    def _remove(self, path: str) -> list[Operation]:
        version = self.documents.version(path)
        return [Delete(path, version)] if version is not None else []

    def _prepare(self) -> None:
        """Create the roots of the tree in the store."""
        if self._prepared:
            return
        for root in (*MASTER_ROOTS, store_paths.BUNDLES):
            if root not in SINGLE_DOCUMENTS:
                with suppress(ExistsError):
                    self._store.create(root)
        self._prepared = True

    def _announce(self) -> None:
        path = f"{store_paths.MASTERS}/{self.info.name}"
        known = self._store.get(path)
        if known is not None and known.owner == self._store.session_id:
            return
        with suppress(ExistsError):  # It belongs to an earlier session of this master that has not ended yet.
            self._store.create(path, encode(self.info), ephemeral=True)

    def _session_changed(self, session: Session) -> None:
        if session is not Session.CLOSED:
            self.wake()


def _assign(assigned: dict[ReplicaId, Assignment], action: Action) -> None:
    """Apply an action to the assignments."""
    match action:
        case Assign(assignment):
            assigned[assignment.replica] = assignment
        case Unassign(replica):
            assigned.pop(replica, None)


def _job_of(action: Action) -> str:
    """Return the job that an action is about; empty if it is about none."""
    job: str = getattr(action, "job", "")
    return job


def _by_subject(actions: list[Action]) -> list[list[Action]]:
    """Group consecutive actions about one job, which are written in one transaction."""
    groups: list[tuple[str, list[Action]]] = []
    for action in actions:
        subject = _job_of(action) or f"alarm {getattr(action, 'id', '')}"
        if groups and groups[-1][0] == subject:
            groups[-1][1].append(action)
        else:
            groups.append((subject, [action]))
    return [group for _, group in groups]
