"""Reconciles one job: the leader's decisions about it. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.backups.data_affinity import affinity_of, is_copy_lost, is_elsewhere, works_on
from penstock.cluster.alarms import job_failed, update_refused
from penstock.cluster.assignment_backoff import repeats_of, request_digest, retry_at
from penstock.cluster.assignments import (
    assignment_of,
    executors,
    has_drained,
    other_code,
    restart_reason,
    slots_of,
    wanted_until,
)
from penstock.cluster.cluster_state import ClusterState, Rules, is_current_revision, newest
from penstock.cluster.documents import (
    ENDED,
    ENDING,
    FAILED,
    OVER,
    PENDING,
    RUNNING,
    STARTING,
    Alarm,
    Assignment,
    Failures,
    JobSpec,
    JobStatus,
    ReplicaAssignment,
    RestoreSource,
    WorkerInfo,
)
from penstock.cluster.failure_policy import describe_failures, has_run_well
from penstock.cluster.leader_actions import Action, Assign, Raise, SetStatus, Unassign, UpdateSpec
from penstock.cluster.placement_request import PlacementRequest, PlacementResult


@dataclass(frozen=True)
class PlacementIntent:
    """Stands for what is done about a job once it is known where it goes."""

    request: PlacementRequest
    reason: str
    restore: RestoreSource | None = None
    optional: bool = False
    """Whether all stays as it is when there is no node for it."""
    unpins: bool = False
    """Whether the user's wish for a certain node is given up with it."""


JobIntent = Action | PlacementIntent


class JobReconciler:
    """Decides about jobs, of which each is on its own."""

    def __init__(self, actual: ClusterState, now: float, epoch: int, rules: Rules) -> None:
        self.actual = actual
        self.now = now
        self.epoch = epoch
        self.rules = rules
        self.lost = frozenset(
            name for name, since in actual.absent_since.items() if now - since >= rules.node_grace
        )
        self.held: dict[str, str] = {}
        """By job or replica, why it would be assigned anew if that had not happened too often lately."""

    def job(self, spec: JobSpec) -> Sequence[JobIntent]:
        """Return what to do about one job."""
        name = spec.name
        assignment = self.actual.assignments.get(name)
        result = self.actual.results.get(name)
        status = self.actual.statuses.get(name)
        if status is not None and status.phase in OVER:
            return self._still_over(spec, assignment, status)
        # What became of the code before is no reason to give the code up that is wanted now.
        tried = assignment is None or not other_code(spec, assignment)
        if result is not None and has_drained(spec, assignment, result):
            return self._over(spec, assignment, ENDED, f"{result.outcome}: {result.reason}")
        if (
            result is not None
            and is_current_revision(spec, result.revision)
            and self._current(result.revision, assignment)
            and (tried or result.outcome != "refused")
            # A worker whose assignment was taken back says that its job was ended: only its user ends it.
            and (spec.wanted == "ended" or result.outcome != "stopped")
        ):
            if result.outcome == "refused":
                return self._refused(spec, assignment, result.reason, result.revision)
            return self._over(spec, assignment, ENDED, f"{result.outcome}: {result.reason}")
        if spec.wanted == "ended" and not spec.drain:
            return self._ending(spec, assignment)
        failures = self.actual.failures.get(name)
        if failures is not None and tried and is_current_revision(spec, failures.revision):
            given_up = self._failing(spec, assignment, failures)
            if given_up:
                return given_up
        return self._running(spec, assignment)

    def _failing(self, spec: JobSpec, assignment: Assignment | None, failures: Failures) -> list[Action]:
        """Give up code that has never run well for the code before, or a job whose worker keeps failing."""
        policy, name = self.rules.failures, spec.name
        if spec.before is not None and policy.falls_back(failures) and not has_run_well(failures):
            return self._refused(spec, assignment, describe_failures(failures), failures.revision)
        # A worker of an earlier revision that runs on is no reason to end the job.
        if not policy.gives_up(failures) or self._older_runs(name, failures.revision):
            return []
        reason = self._until_tried_again(name, describe_failures(failures))
        alarm = job_failed(name, reason, self.now, failures.revision, failures)
        return [*self._over(spec, assignment, FAILED, reason), *self._raised(alarm)]

    def _until_tried_again(self, job: str, reason: str) -> str:
        """Add to the reason for which a job has failed when it is tried again."""
        status = self.actual.statuses.get(job)
        seconds = self.rules.failures.second_chance(status.chances if status is not None else 0)
        return f"{reason}; it is restarted after {seconds / 60:g} minutes"

    def _raised(self, alarm: Alarm) -> list[Action]:
        """Raise an alarm, unless there is one about the same revision."""
        known = self.actual.alarms.get(alarm.id)
        same = known is not None and known.evidence.get("revision") == alarm.evidence.get("revision")
        return [] if same else [Raise(alarm)]

    def _older_runs(self, name: str, revision: int) -> bool:
        workers = self.actual.workers.get(name, ())
        return any(worker.phase == "running" and worker.revision < revision for worker in workers)

    def _current(self, revision: int, assignment: Assignment | None) -> bool:
        return assignment is None or revision >= assignment.revision

    def _refused(
        self, spec: JobSpec, assignment: Assignment | None, reason: str, revision: int
    ) -> list[Action]:
        """Fall back to the code before an update that was refused after all, or fail."""
        if spec.before is None:
            alarm = job_failed(spec.name, reason, self.now, revision)
        else:
            alarm = update_refused(spec, reason, self.now, revision)
        if spec.before is None:
            return [*self._over(spec, assignment, FAILED, f"refused: {reason}"), *self._raised(alarm)]
        code = spec.before
        back = replace(
            spec,
            bundle=code.bundle,
            entry=code.entry,
            structure=code.structure,
            generation=code.generation,
            params=code.params,
            env=code.env,
            before=None,
            after=revision,
        )
        # Told anew each time, and before the job goes back: after that nobody knows of the refusal.
        return [Raise(alarm), UpdateSpec(back, f"the update was refused: {reason}")]

    def _over(self, spec: JobSpec, assignment: Assignment | None, phase: str, reason: str) -> list[Action]:
        gone: list[Action] = [Unassign(spec.name, reason)] if assignment else []
        return [*gone, *self._status(spec, phase, reason)]

    def _still_over(self, spec: JobSpec, assignment: Assignment | None, status: JobStatus) -> list[Action]:
        """Leave a job that is over alone: whoever wants it to run again says so in its status, too.

        Its result may not be known yet, and a worker that was told to leave may write another one.
        """
        over = self._over(spec, assignment, status.phase, status.reason)
        if status.phase != FAILED or not is_current_revision(spec, status.revision):
            return over
        if not over and self._gets_another_chance(spec, status):
            return self._another_chance(spec, status)
        # A leader may have ended between saying that it has failed and telling people.
        failures = self.actual.failures.get(spec.name)
        alarm = job_failed(spec.name, status.reason, status.since, status.revision, failures)
        return [*over, *self._raised(alarm)]

    def _gets_another_chance(self, spec: JobSpec, status: JobStatus) -> bool:
        """Whether a job that failed because its worker did is tried again: what it needs may be back."""
        policy = self.rules.failures
        wanted = spec.wanted == "running" or spec.drain
        if not wanted or not policy.is_due(status.since, policy.second_chance(status.chances), self.now):
            return False
        failures = [self.actual.failures[name] for name in self.actual.failed.get(spec.name, ())]
        results = [self.actual.results[name] for name in self.actual.finished.get(spec.name, ())]
        refused = any(one.outcome == "refused" and is_current_revision(spec, one.revision) for one in results)
        given_up = any(policy.gives_up(one) and is_current_revision(spec, one.revision) for one in failures)
        return given_up and not refused

    def _another_chance(self, spec: JobSpec, status: JobStatus) -> list[Action]:
        """Start a job that has failed once more. Its alarm stays until it runs well."""
        reason = f"it is restarted {round(abs(self.now - status.since))} s after it failed"
        again = replace(
            status,
            phase=PENDING,
            reason=reason,
            since=self.now,
            safety="",
            unsafe_since=0.0,
            chances=status.chances + 1,
        )
        return [UpdateSpec(replace(spec, after=status.revision), reason), SetStatus(spec.name, again)]

    def _ending(self, spec: JobSpec, assignment: Assignment | None) -> list[Action]:
        left = self.actual.workers.get(spec.name, ())
        if assignment is not None:
            return self._over(spec, assignment, ENDING, "it was killed")
        if left:
            return self._status(spec, ENDING, f"its worker on {left[0].node} ends its batch")
        return self._status(spec, ENDED, "it was killed")

    def _running(self, spec: JobSpec, assignment: Assignment | None) -> Sequence[JobIntent]:
        if assignment is None:
            return self._place(spec, None, self._why_new(spec))
        if self._is_lost(assignment):
            return self._place(spec, assignment, f"node {assignment.node} is lost")
        change = self._changed(spec, assignment)
        if change:
            return self._place(spec, assignment, change)
        elsewhere = self._try_elsewhere(spec, assignment)
        if elsewhere:
            return elsewhere
        moved = self._moved(spec, assignment)
        if moved:
            return self._place(spec, assignment, moved, only=spec.driver)
        staying, missing = executors(spec, assignment.executors, self._left_by_executors(spec))
        request = PlacementRequest(spec, assignment, driver=False, slots=staying, missing=missing)
        if missing:
            return [PlacementIntent(request, "its executors are placed again")]
        return self._adjusted(request, PlacementResult())

    def _left_by_executors(self, spec: JobSpec) -> frozenset[str]:  # noqa: ARG002
        """Return the nodes on which executors of a job do not stay."""
        return self.lost

    def _why_new(self, spec: JobSpec) -> str:
        return "it was restarted" if self._revision(spec) else "it was submitted"

    def _changed(self, spec: JobSpec, assignment: Assignment) -> str | None:
        """Say why a job needs a new worker, wherever that is; None when it does not."""
        return restart_reason(spec, assignment) or self._away(spec, assignment)

    def _membership(self, spec: JobSpec, before: Assignment | None) -> ReplicaAssignment | None:  # noqa: ARG002
        """Return the replica that a worker runs; None for a job without replicas."""
        return None

    def _adjusted(self, request: PlacementRequest, placed: PlacementResult, note: str = "") -> list[Action]:
        """Give a job the executors that it has nodes for, and what else it can get without a new worker.

        A note says what it cannot get.
        """
        spec, assignment = request.spec, request.before
        assert assignment is not None, "who has no assignment needs a whole one"
        slots, until = slots_of(request, placed), wanted_until(spec)
        membership = self._membership(spec, assignment)
        # Compared first: of thousands of jobs that are as wanted, a copy of each takes most of the time.
        if (slots, until, membership) == (
            assignment.executors,
            assignment.settings.until,
            assignment.membership,
        ):
            return self._progress(spec, assignment, note)
        counted: dict[str, Any] = {}
        if slots != assignment.executors:
            why = "its executors are placed again"
            held = self._held(spec, assignment, why)
            if held:
                slots, note = assignment.executors, note or f"{why}: {held}"
            else:
                counted = self._counted(spec, assignment)
        running = replace(assignment.settings, until=until)
        if counted:
            resources = replace(running.resources, executors=spec.settings.resources.executors)
            running = replace(running, resources=resources)
        adjusted = replace(assignment, executors=slots, settings=running, membership=membership, **counted)
        if adjusted == assignment:
            return self._progress(spec, assignment, note)
        reason = "it ends when drained"
        if adjusted.membership != assignment.membership:
            reason = "it is no longer a standby"
        elif slots != assignment.executors:
            reason = "its executors are placed again"
        adjusted = replace(adjusted, epoch=self.epoch)
        return [Assign(adjusted, reason), *self._progress(spec, adjusted, note)]

    def _held(self, spec: JobSpec, before: Assignment | None, reason: str) -> str:
        """Note and say that a job is not assigned anew yet, because it was too often; empty if it may be.

        What has lost its node is never held up.
        """
        last = before or self.actual.statuses.get(spec.name)
        if last is None or (before is not None and self._is_lost(before)):
            return ""
        if not retry_at(last, request_digest(spec), self.now, self.rules):
            return ""
        self.held[spec.name] = reason
        return f"delayed, because it was assigned {last.repeats + 1} times in a row"

    def _counted(self, spec: JobSpec, before: Assignment | None) -> dict[str, Any]:
        """Return what an assignment says of how often the same was asked for before it."""
        asked = request_digest(spec)
        last = before or self.actual.statuses.get(spec.name)
        repeats = repeats_of(last, asked, self.now, self.rules)
        return {
            "asked": asked,
            "repeats": repeats,
            "changed": self.now,
        }

    def _try_elsewhere(self, spec: JobSpec, assignment: Assignment) -> Sequence[JobIntent]:
        """Move a job whose worker keeps failing: it may be the node's fault (Lee et al., IV.C).

        One that keeps its data with its node stays: elsewhere it would have less.
        """
        failures, policy = self.actual.failures.get(spec.name), self.rules.failures
        up = [one for one in self.actual.workers.get(spec.name, ()) if one.revision == assignment.revision]
        if (
            failures is None
            or not policy.moves(failures, assignment.revision, self.now)
            or any(self._runs_well(one) for one in up)
            or spec.settings.data_location == "node"
        ):
            return []
        reason = f"its worker keeps failing on {assignment.node}"
        # Where it is pinned to, it would be moved back at once.
        elsewhere = replace(spec, driver="") if spec.driver == assignment.node else spec
        staying, missing = executors(elsewhere, assignment.executors, self._left_by_executors(spec))
        request = PlacementRequest(
            elsewhere,
            assignment,
            slots=staying,
            missing=missing,
            prefer=elsewhere.driver,
            avoid=policy.troubled_nodes(failures) | {assignment.node},
        )
        return [PlacementIntent(request, reason, optional=True, unpins=elsewhere is not spec)]

    def _moved(self, spec: JobSpec, assignment: Assignment) -> str | None:
        """Say where a job was moved to, if it is not there. One that keeps its data with its node stays."""
        wanted = spec.driver
        allowed = wanted in self.actual.nodes and (
            not spec.settings.placement.nodes or wanted in spec.settings.placement.nodes
        )
        if allowed and wanted != assignment.node and spec.settings.data_location != "node":
            return f"it was moved to {wanted}"
        return None

    def _away(self, spec: JobSpec, assignment: Assignment) -> str | None:
        """Say where a job's data is, if it is not where the job was assigned to: a worker there went on."""
        kept = self.actual.kept.get(spec.name)
        if spec.settings.data_location != "node" or kept is None or kept.origin not in self.actual.nodes:
            return None
        if is_elsewhere(assignment, assignment.node, kept):
            return f"its data is on {kept.origin}, of revision {kept.revision}"
        if kept.origin != assignment.node and works_on(kept, self.actual):
            return f"{kept.origin} is back, and its worker there continues"
        if is_copy_lost(assignment, kept, self.actual):
            return f"{kept.origin} is back with its data, and the backup to restore cannot be reached"
        return None

    def _is_lost(self, assignment: Assignment) -> bool:
        """Whether a driver's node is gone. A worker that still holds its place lives, whatever its node."""
        if assignment.node not in self.lost:
            return False
        workers = self.actual.workers.get(assignment.job, ())
        return not any(worker.revision == assignment.revision for worker in workers)

    def _is_dead(self, assignment: Assignment) -> bool:
        """Whether a driver's node is gone, and no worker of an earlier revision runs on in its place."""
        return self._is_lost(assignment) and not self._runs(assignment.job)

    def _runs(self, name: str) -> bool:
        """Whether any worker of a job or replica runs, of whatever revision."""
        return any(worker.phase == "running" for worker in self.actual.workers.get(name, ()))

    def _place(
        self, spec: JobSpec, before: Assignment | None, reason: str, only: str = ""
    ) -> Sequence[JobIntent]:
        """Have a job placed for a new worker, on any node or on one only."""
        home = affinity_of(spec, before, self.actual)
        if before is not None and self._is_dead(before):
            before = replace(before, executors=())  # They run for nobody: all of them are placed anew.
        if home.waits:
            kept = PlacementRequest(spec, before, slots=before.executors if before is not None else ())
            return self._stays(kept, PlacementResult(), f"{reason}: {home.waits}")
        staying, missing = executors(spec, before.executors if before else (), self._left_by_executors(spec))
        there = before.node if before is not None and before.node not in self.lost else ""
        request = PlacementRequest(
            spec,
            before,
            slots=staying,
            missing=missing,
            stay=there if there in self.actual.nodes else "",
            prefer=home.prefer or spec.driver,
            only=home.only or only,
        )
        return [PlacementIntent(request, reason, home.restore)]

    def _stays(self, request: PlacementRequest, placed: PlacementResult, note: str) -> list[Action]:
        """Leave a job where it is that cannot be placed anew; it gets all that needs no new worker."""
        before = request.before
        if before is None or self._is_dead(before):
            return self._released(request.spec, note)
        given_up = self._failure_of_superseded(before) if self._changed(request.spec, before) else ""
        if given_up:
            note = f"{note}; {given_up}" if note else given_up
        if given_up or self._lacks_its_data(request.spec, before):
            return self._taken_back(request.spec, before, note)
        return self._adjusted(request.staying, placed, note)

    def _taken_back(self, spec: JobSpec, assignment: Assignment, note: str) -> list[Action]:
        """Take an assignment back; the job waits for a node, and its next assignment goes on counting."""
        return [Unassign(spec.name, note), *self._status(spec, PENDING, note, taken_back=assignment)]

    def _failure_of_superseded(self, assignment: Assignment) -> str:
        """Return why superseded code cannot run until its successor finds a node; empty if it can.

        It was refused, or has failed too often. Failures of the code that is wanted are decided on before.
        """
        if self._runs(assignment.job):
            return ""
        result = self.actual.results.get(assignment.job)
        if result is not None and (result.revision, result.outcome) == (assignment.revision, "refused"):
            return f"refused: {result.reason}"
        failures = self.actual.failures.get(assignment.job)
        if failures is None or failures.revision != assignment.revision:
            return ""
        return describe_failures(failures) if self.rules.failures.gives_up(failures) else ""

    def _released(self, spec: JobSpec, note: str) -> list[Action]:
        """Take back the assignment of a driver that is dead and has executors on nodes that are there.

        They run for nobody, and others may need their room. A driver that comes back has lost them.
        """
        assignment = self.actual.assignments.get(spec.name)
        if assignment is None or all(slot.node in self.lost for slot in assignment.executors):
            return self._status(spec, PENDING, note)
        return self._taken_back(spec, assignment, note)

    def _lacks_its_data(self, spec: JobSpec, assignment: Assignment) -> bool:
        """Whether nobody works, and a worker here could not: newer data is elsewhere, or its copy is lost."""
        kept = self.actual.kept.get(spec.name)
        if spec.settings.data_location != "node" or kept is None or self._runs(spec.name):
            return False
        return is_elsewhere(assignment, assignment.node, kept) or is_copy_lost(assignment, kept, self.actual)

    def placed(self, intent: PlacementIntent, answers: Mapping[str, PlacementResult]) -> list[Action]:
        """Return what to do now that it is known where a job goes."""
        request, spec = intent.request, intent.request.spec
        placed = answers.get(spec.name, PlacementResult(told="the placer returned no answer for it"))
        before = request.before
        if not request.driver:
            return self._adjusted(request, placed)
        if placed.node is None:
            note = "" if intent.optional else f"{intent.reason}, and {placed.told}"
            return self._stays(request, placed, note)
        held = self._held(spec, before, intent.reason)
        if held:
            return self._stays(request, PlacementResult(), f"{intent.reason}: {held}")
        revision = self._next_revision(spec)
        made = assignment_of(
            request,
            placed,
            revision=revision,
            epoch=self.epoch,
            now=self.now,
            reason=intent.reason,
            restore=intent.restore,
            membership=self._membership(spec, None),
        )
        made = replace(made, after=self._after(spec, before, revision), **self._counted(spec, before))
        told = f"{intent.reason}: on {made.node}"
        unpinned = [UpdateSpec(spec, intent.reason)] if intent.unpins else []
        return [*unpinned, Assign(made, told), *self._status(spec, STARTING, told, revision)]

    def _progress(self, spec: JobSpec, assignment: Assignment, note: str = "") -> list[Action]:
        """Say how far a job is, and what it cannot get."""
        more = f"; {note}" if note else ""
        workers = self.actual.workers.get(spec.name, ())
        running = [worker for worker in workers if worker.phase == "running"]
        leading = newest(tuple(running))
        if leading is None:
            return self._status(spec, STARTING, f"{_starting(assignment, workers)}{more}")
        ending = spec.wanted == "ended"
        phase = ENDING if ending else RUNNING
        if leading.revision < assignment.revision:
            return self._status(
                spec, phase, f"on {leading.node}, until revision {assignment.revision} is ready{more}"
            )
        if spec.before is not None and self._is_proven(spec, spec.name):
            # From now on a failure is not one of the update.
            spec = replace(spec, before=None)
            return [
                UpdateSpec(spec, "its new code runs successfully"),
                *self._progress(spec, assignment, note),
            ]
        there = [slot for slot in assignment.executors if slot.node not in self.lost]
        missing = spec.settings.resources.executors - len(there)
        lacks = (
            f", {missing} of {spec.settings.resources.executors} executors have no node"
            if missing > 0
            else ""
        )
        what = "draining" if ending else "running"
        return self._status(spec, phase, f"{what} on {leading.node}{lacks}{more}")

    def _is_proven(self, spec: JobSpec, member: str) -> bool:
        """Whether the code of an update has run well, in a worker that is up or in one that has failed."""
        assignment = self.actual.assignments.get(member)
        if assignment is None or other_code(spec, assignment):
            return False
        failures = self.actual.failures.get(member)
        if failures is not None and is_current_revision(spec, failures.revision) and has_run_well(failures):
            return True
        workers = [
            one for one in self.actual.workers.get(member, ()) if is_current_revision(spec, one.revision)
        ]
        return any(self._runs_well(one) for one in workers if one.phase == "running")

    def _runs_well(self, worker: WorkerInfo) -> bool:
        return self.rules.failures.ran_well(worker.progress, self.actual.up_for(worker, self.now))

    def _after(self, spec: JobSpec, before: Assignment | None, revision: int) -> int:  # noqa: ARG002
        """Return the revision up to which failures are history for a new worker."""
        return spec.after

    def _next_revision(self, spec: JobSpec) -> int:
        return self._revision(spec) + 1

    def _revision(self, spec: JobSpec) -> int:
        status = self.actual.statuses.get(spec.name)
        assignment = self.actual.assignments.get(spec.name)
        return max(status.revision if status else 0, assignment.revision if assignment else 0)

    def _status(
        self,
        spec: JobSpec,
        phase: str,
        reason: str,
        revision: int | None = None,
        taken_back: Assignment | None = None,
    ) -> list[Action]:
        number = revision if revision is not None else self._revision(spec)
        before = self.actual.statuses.get(spec.name)
        since = before.since if before is not None and before.phase == phase else self.now
        status = JobStatus(phase, reason, since, number)
        last = taken_back or (before if phase == PENDING else None)
        if last is not None and last.asked:
            status = replace(status, asked=last.asked, repeats=last.repeats, changed=last.changed)
        return self._say(spec.name, status)

    def _say(self, job: str, status: JobStatus) -> list[Action]:
        """Say how a job stands, unless that has been said."""
        before = self.actual.statuses.get(job)
        if before is not None:
            chances, since = before.chances, status.since
            if before.phase == status.phase:
                since = before.since
            if chances and status.phase == before.phase == RUNNING:
                well = self.now - before.since >= self.rules.failures.window
                chances = 0 if well else chances
            if (chances, since) != (status.chances, status.since):
                status = replace(status, chances=chances, since=since)
        return [SetStatus(job, status)] if status != before else []

    def concluded(self, actions: list[Action]) -> list[Action]:
        """Return what is done about a job in the end, given what is done about each of its parts."""
        return actions


def _starting(assignment: Assignment, workers: tuple[WorkerInfo, ...]) -> str:
    mine = newest(tuple(worker for worker in workers if worker.revision == assignment.revision))
    if mine is None:
        return f"{assignment.node} starts its worker"
    return f"its worker on {mine.node} is {mine.phase}"
