"""Plans one worker that should run: the worker of a job, or of one of its replicas.

The caller describes what is special about a replica in a :class:`DesiredWorker`. Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from penstock.backups.data_affinity import affinity_of, is_copy_lost, is_elsewhere, works_on
from penstock.cluster.assignment_backoff import Counted, repeats_of, request_digest, retry_at
from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment, RestoreSource
from penstock.cluster.assignments import (
    assignment_of,
    executors,
    restart_reason,
    slots_of,
    wanted_until,
)
from penstock.cluster.cluster_state import newest
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.failure_policy import describe_failures
from penstock.cluster.job_documents import (
    ENDING,
    PENDING,
    RUNNING,
    STARTING,
    AssignmentCount,
    JobSpec,
    JobStatus,
)
from penstock.cluster.leader_actions import Assign, Unassign, UpdateSpec
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.cluster.worker_documents import WorkerInfo
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class DesiredWorker:
    """A worker that should run, and its current assignment."""

    id: ReplicaId
    spec: JobSpec
    assignment: Assignment | None
    count: JobStatus | AssignmentCount | None
    """The counters of an assignment that was withdrawn; the next assignment continues them."""
    why_new: str
    """The reason of the first assignment, if there is none yet."""
    history: int | None
    """Failures up to this revision are history for a new worker; None for all revisions before its own."""
    restart: str | None = None
    """Why its replica set needs a new worker for it; None if it does not."""
    may_move: bool = True
    """Whether it may go where the user has moved its driver."""
    vacated: frozenset[str] = frozenset()
    """Nodes that its executors leave to other replicas."""
    role: ReplicaAssignment | None = None
    """The role in its replica set; None for a job without replicas."""
    role_of_new: ReplicaAssignment | None = None
    """The role of a new worker."""


@dataclass(frozen=True)
class PlacementIntent:
    """A change of a worker that needs a placement first."""

    request: PlacementRequest
    reason: str
    restore: RestoreSource | None = None
    optional: bool = False
    """Whether nothing changes if no node is found."""
    unpins: bool = False
    """Whether the change removes the node that the user chose."""


@dataclass(frozen=True)
class WorkerOutcome:
    """The actions for a worker, and its state."""

    phase: str
    reason: str
    actions: tuple[Assign | Unassign | UpdateSpec, ...] = ()
    taken_back: Assignment | None = None
    """The assignment that is withdrawn until there is a node; the next one continues its counters."""
    held: str = ""
    """The reason of an assignment that is delayed because there were too many lately."""


class Revisions:
    """Issues the revisions of a job, each only once for all of its workers."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        """Return the revision of a new worker."""
        self.last += 1
        return self.last


@final
class WorkerPlanner:
    """Decides about one worker."""

    def __init__(self, worker: DesiredWorker, context: DecisionContext) -> None:
        self._worker = worker
        self._id = worker.id
        self._context = context
        self._state = context.state

    def plan(self) -> WorkerOutcome | PlacementIntent:
        """Return the actions for the worker, or what has to be placed first."""
        worker = self._worker
        spec, assignment = worker.spec, worker.assignment
        if assignment is None:
            return self._place(worker.why_new)
        if self._context.is_lost(assignment):
            return self._place(f"node {assignment.node} is lost")
        change = self._changed(assignment)
        if change:
            return self._place(change)
        elsewhere = self._try_elsewhere(assignment)
        if elsewhere is not None:
            return elsewhere
        moved = self._moved(assignment)
        if moved:
            return self._place(moved, only=spec.driver)
        staying, missing = executors(spec, assignment.executors, self._left_by_executors)
        request = PlacementRequest(
            spec, assignment, driver=False, slots=staying, missing=missing, replica=worker.id.index
        )
        if missing:
            return PlacementIntent(request, "its executors are placed again")
        return self._adjusted(request, PlacementResult())

    def placed(self, intent: PlacementIntent, placed: PlacementResult, revisions: Revisions) -> WorkerOutcome:
        """Return the actions for the worker, given its placement."""
        request, spec = intent.request, intent.request.spec
        if not request.driver:
            return self._adjusted(request, placed)
        if placed.node is None:
            note = "" if intent.optional else f"{intent.reason}, and {placed.told}"
            return self._stays(request, placed, note)
        held = self._held(spec)
        if held:
            stays = self._stays(request, PlacementResult(), f"{intent.reason}: {held}")
            return replace(stays, held=stays.held or intent.reason)
        revision, history = revisions.next(), self._worker.history
        made = assignment_of(
            request,
            placed,
            revision=revision,
            epoch=self._context.epoch,
            now=self._context.now,
            reason=intent.reason,
            restore=intent.restore,
            membership=self._worker.role_of_new,
        )
        made = replace(made, after=revision - 1 if history is None else history, **self._counted(spec))
        told = f"{intent.reason}: on {made.node}"
        unpinned = (UpdateSpec(spec, intent.reason),) if intent.unpins else ()
        return WorkerOutcome(STARTING, told, (*unpinned, Assign(made, told)))

    @property
    def _left_by_executors(self) -> frozenset[str]:
        """The nodes on which executors do not stay."""
        return self._context.lost | self._worker.vacated

    def _changed(self, assignment: Assignment) -> str | None:
        """Return why it needs a new worker, wherever that is; None when it does not."""
        return restart_reason(self._worker.spec, assignment) or self._away(assignment) or self._worker.restart

    def _adjusted(self, request: PlacementRequest, placed: PlacementResult, note: str = "") -> WorkerOutcome:
        """Give a worker the executors that it has nodes for, and what else it can get without a new one.

        A note says what it cannot get.
        """
        spec, assignment = request.spec, request.before
        assert assignment is not None, "a worker without an assignment needs a complete one"
        slots, until, role = slots_of(request, placed), wanted_until(spec), self._worker.role
        # Compared first: of thousands of jobs that are as wanted, a copy of each takes most of the time.
        if (slots, until, role) == (assignment.executors, assignment.settings.until, assignment.membership):
            return self._progress(spec, assignment, note)
        counted: dict[str, Any] = {}
        why = held = ""
        if slots != assignment.executors:
            why = "its executors are placed again"
            held = self._held(spec)
            if held:
                slots, note = assignment.executors, note or f"{why}: {held}"
            else:
                counted = self._counted(spec)
        running = replace(assignment.settings, until=until)
        if counted:
            resources = replace(running.resources, executors=spec.settings.resources.executors)
            running = replace(running, resources=resources)
        adjusted = replace(assignment, executors=slots, settings=running, membership=role, **counted)
        if adjusted == assignment:
            return replace(self._progress(spec, assignment, note), held=why if held else "")
        reason = "it ends when drained"
        if role != assignment.membership:
            reason = "it is no longer a standby"
        elif slots != assignment.executors:
            reason = why
        adjusted = replace(adjusted, epoch=self._context.epoch)
        progress = self._progress(spec, adjusted, note)
        actions = (Assign(adjusted, reason), *progress.actions)
        return replace(progress, actions=actions, held=why if held else "")

    @property
    def _last(self) -> Counted | None:
        """The assignment before the next one, or what is kept of it."""
        return self._worker.assignment or self._worker.count

    def _held(self, spec: JobSpec) -> str:
        """Return why a worker is not assigned anew yet though it should be; empty if it may be.

        What has lost its node is never held up.
        """
        last, assignment = self._last, self._worker.assignment
        if last is None or (assignment is not None and self._context.is_lost(assignment)):
            return ""
        if not retry_at(last, request_digest(spec), self._context.now, self._context.rules):
            return ""
        return f"delayed, because it was assigned {last.repeats + 1} times in a row"

    def _counted(self, spec: JobSpec) -> dict[str, Any]:
        """Return what an assignment says of how often the same was asked for before it."""
        asked, now = request_digest(spec), self._context.now
        repeats = repeats_of(self._last, asked, now, self._context.rules)
        return {
            "asked": asked,
            "repeats": repeats,
            "changed": now,
        }

    def _try_elsewhere(self, assignment: Assignment) -> PlacementIntent | None:
        """Move a worker that keeps failing: it may be the node's fault (Lee et al., IV.C).

        The worker of a job that keeps its data with its node stays: elsewhere it would have less.
        """
        spec, policy = self._worker.spec, self._context.rules.failures
        failures = self._state.failures.get(self._id)
        up = [one for one in self._state.workers.get(self._id, ()) if one.revision == assignment.revision]
        if (
            failures is None
            or not policy.moves(failures, assignment.revision, self._context.now)
            or any(self._context.runs_well(one) for one in up)
            or spec.settings.data_location == "node"
        ):
            return None
        reason = f"its worker keeps failing on {assignment.node}"
        # Where it is pinned to, it would be moved back at once.
        elsewhere = replace(spec, driver="") if spec.driver == assignment.node else spec
        staying, missing = executors(elsewhere, assignment.executors, self._left_by_executors)
        request = PlacementRequest(
            elsewhere,
            assignment,
            slots=staying,
            missing=missing,
            prefer=elsewhere.driver,
            avoid=policy.troubled_nodes(failures) | {assignment.node},
            replica=self._worker.id.index,
        )
        return PlacementIntent(request, reason, optional=True, unpins=elsewhere is not spec)

    def _moved(self, assignment: Assignment) -> str | None:
        """Return where the driver was moved to, if it is not there. Node-kept data keeps it where it is."""
        spec, wanted = self._worker.spec, self._worker.spec.driver
        permitted = spec.settings.placement.nodes
        allowed = wanted in self._state.nodes and (not permitted or wanted in permitted)
        movable = self._worker.may_move and spec.settings.data_location != "node"
        if allowed and movable and wanted != assignment.node:
            return f"it was moved to {wanted}"
        return None

    def _away(self, assignment: Assignment) -> str | None:
        """Return where the job's data is, if that is not where it is assigned: a worker there went on."""
        spec = self._worker.spec
        kept = self._state.kept.get(spec.name)
        if spec.settings.data_location != "node" or kept is None or kept.origin not in self._state.nodes:
            return None
        if is_elsewhere(assignment, assignment.node, kept):
            return f"its data is on {kept.origin}, of revision {kept.revision}"
        if kept.origin != assignment.node and works_on(kept, self._state):
            return f"{kept.origin} is back, and its worker there continues"
        if is_copy_lost(assignment, kept, self._state):
            return f"{kept.origin} is back with its data, and the backup to restore cannot be reached"
        return None

    def _place(self, reason: str, only: str = "") -> WorkerOutcome | PlacementIntent:
        """Have a new worker placed, on any node or on one only."""
        spec, before = self._worker.spec, self._worker.assignment
        home = affinity_of(spec, before, self._state)
        if before is not None and self._context.is_dead(before):
            before = replace(before, executors=())  # They run for nobody: all of them are placed anew.
        if home.waits:
            slots = before.executors if before is not None else ()
            kept = PlacementRequest(spec, before, slots=slots, replica=self._worker.id.index)
            return self._stays(kept, PlacementResult(), f"{reason}: {home.waits}")
        staying, missing = executors(spec, before.executors if before else (), self._left_by_executors)
        there = before.node if before is not None and before.node not in self._context.lost else ""
        request = PlacementRequest(
            spec,
            before,
            slots=staying,
            missing=missing,
            stay=there if there in self._state.nodes else "",
            prefer=home.prefer or spec.driver,
            only=home.only or only,
            replica=self._worker.id.index,
        )
        return PlacementIntent(request, reason, home.restore)

    def _stays(self, request: PlacementRequest, placed: PlacementResult, note: str) -> WorkerOutcome:
        """Leave a worker where it is that cannot be placed anew; it gets all that needs no new one."""
        before = request.before
        if before is None or self._context.is_dead(before):
            return self._released(note)
        given_up = self._failure_of_superseded(before) if self._changed(before) else ""
        if given_up:
            note = f"{note}; {given_up}" if note else given_up
        if given_up or self._lacks_its_data(before):
            return self._taken_back(before, note)
        return self._adjusted(request.staying, placed, note)

    def _taken_back(self, assignment: Assignment, note: str) -> WorkerOutcome:
        """Take an assignment back; the job waits for a node, and its next assignment goes on counting."""
        return WorkerOutcome(PENDING, note, (Unassign(self._id, note),), taken_back=assignment)

    def _failure_of_superseded(self, assignment: Assignment) -> str:
        """Return why superseded code cannot run until its successor finds a node; empty if it can.

        It was refused, or has failed too often. Failures of the code that is wanted are decided on before.
        """
        if self._context.runs(assignment.replica):
            return ""
        result = self._state.results.get(assignment.replica)
        if result is not None and (result.revision, result.outcome) == (assignment.revision, "refused"):
            return f"refused: {result.reason}"
        failures = self._state.failures.get(assignment.replica)
        if failures is None or failures.revision != assignment.revision:
            return ""
        return describe_failures(failures) if self._context.rules.failures.gives_up(failures) else ""

    def _released(self, note: str) -> WorkerOutcome:
        """Take back the assignment of a driver that is dead and has executors on nodes that are there.

        They run for nobody, and others may need their room. A driver that comes back has lost them.
        """
        assignment = self._worker.assignment
        if assignment is None or all(slot.node in self._context.lost for slot in assignment.executors):
            return WorkerOutcome(PENDING, note)
        return self._taken_back(assignment, note)

    def _lacks_its_data(self, assignment: Assignment) -> bool:
        """Return whether nobody works and a worker here could not: it has older data, or its copy is lost."""
        spec = self._worker.spec
        kept = self._state.kept.get(spec.name)
        if spec.settings.data_location != "node" or kept is None or self._context.runs(self._id):
            return False
        return is_elsewhere(assignment, assignment.node, kept) or is_copy_lost(assignment, kept, self._state)

    def _progress(self, spec: JobSpec, assignment: Assignment, note: str = "") -> WorkerOutcome:
        """Return how far a worker is, and what it cannot get."""
        more = f"; {note}" if note else ""
        workers = self._state.workers.get(self._id, ())
        leading = newest(tuple(worker for worker in workers if worker.phase == "running"))
        if leading is None:
            return WorkerOutcome(STARTING, f"{_starting(assignment, workers)}{more}")
        ending = spec.wanted == "ended"
        phase = ENDING if ending else RUNNING
        if leading.revision < assignment.revision:
            told = f"on {leading.node}, until revision {assignment.revision} is ready{more}"
            return WorkerOutcome(phase, told)
        proven: tuple[UpdateSpec, ...] = ()
        if spec.before is not None and self._context.is_proven(spec, self._id):
            # From now on a failure is not one of the update.
            proven = (UpdateSpec(replace(spec, before=None), "its new code runs successfully"),)
        asked = spec.settings.resources.executors
        missing = asked - sum(slot.node not in self._context.lost for slot in assignment.executors)
        lacks = f", {missing} of {asked} executors have no node" if missing > 0 else ""
        what = "draining" if ending else "running"
        return WorkerOutcome(phase, f"{what} on {leading.node}{lacks}{more}", proven)


def _starting(assignment: Assignment, workers: tuple[WorkerInfo, ...]) -> str:
    mine = newest(tuple(worker for worker in workers if worker.revision == assignment.revision))
    if mine is None:
        return f"{assignment.node} starts its worker"
    return f"its worker on {mine.node} is {mine.phase}"
