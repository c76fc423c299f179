"""Reconciles one job: the leader's decisions about a job without replicas, and what they consist of.

Pure: the time is an argument. For a job with replicas see
:mod:`penstock.replicas.decisions.replica_set_reconciler`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, final

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.assignments import has_drained, other_code
from penstock.cluster.cluster_state import is_current_revision
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.failure_policy import describe_failures, has_run_well
from penstock.cluster.job_documents import ENDED, PENDING, JobSpec, JobStatus
from penstock.cluster.job_lifecycle import JobLifecycle
from penstock.cluster.leader_actions import Action
from penstock.cluster.placement_request import PlacementResult
from penstock.cluster.worker_documents import Failures
from penstock.cluster.worker_planner import (
    DesiredWorker,
    PlacementIntent,
    Revisions,
    WorkerOutcome,
    WorkerPlanner,
)
from penstock.replicas.replica_id import ReplicaId

NO_ANSWER = PlacementResult(told="the placer returned no answer for it")


@dataclass(frozen=True)
class JobDecision:
    """What is done about a job."""

    actions: Sequence[Action] = ()
    held: Mapping[ReplicaId, str] = field(default_factory=dict)
    """The delayed assignments: for each replica why it would be assigned again."""


class JobReconciler(Protocol):
    """Decides about one job, in two steps: what of all jobs needs a node is placed between them."""

    def intents(self) -> Sequence[PlacementIntent]:
        """Return what has to be placed."""
        ...

    def decide(self, answers: Mapping[ReplicaId, PlacementResult]) -> JobDecision:
        """Return what is done about the job, given where its parts go."""
        ...


@final
class SingleJobReconciler:
    """Decides about a job without replicas."""

    def __init__(self, spec: JobSpec, context: DecisionContext) -> None:
        state, replica = context.state, spec.first_replica
        self._spec = spec
        self._context = context
        self._status = state.statuses.get(spec.name)
        self._assignment = state.assignments.get(replica)
        known = [one.revision for one in (self._status, self._assignment) if one is not None]
        revision = max(known, default=0)
        self._revisions = Revisions(revision)
        assigned = (replica,) if self._assignment is not None else ()
        self._lifecycle = JobLifecycle(spec, context, self._status, assigned, (replica,), revision)

    def intents(self) -> Sequence[PlacementIntent]:
        """Return what has to be placed."""
        return [self._plan] if isinstance(self._plan, PlacementIntent) else []

    def decide(self, answers: Mapping[ReplicaId, PlacementResult]) -> JobDecision:
        """Return what is done about the job, given where its parts go."""
        plan = self._plan
        if isinstance(plan, PlacementIntent):
            answer = answers.get(self._spec.first_replica, NO_ANSWER)
            plan = self._planner.placed(plan, answer, self._revisions)
        if not isinstance(plan, WorkerOutcome):
            return JobDecision(plan)
        held = {self._spec.first_replica: plan.held} if plan.held else {}
        return JobDecision([*plan.actions, *self._lifecycle.say(self._status_of(plan))], held)

    @cached_property
    def _plan(self) -> Sequence[Action] | PlacementIntent | WorkerOutcome:
        decided = self._decided_as_a_whole()
        return self._planner.plan() if decided is None else decided

    @cached_property
    def _planner(self) -> WorkerPlanner:
        spec = self._spec
        why_new = "it was restarted" if self._revisions.last else "it was submitted"
        replica = spec.first_replica
        worker = DesiredWorker(replica, spec, self._assignment, self._status, why_new, history=spec.after)
        return WorkerPlanner(worker, self._context)

    def _decided_as_a_whole(self) -> Sequence[Action] | None:
        """Return what is done about a job that is over, ends or fails; None about one that runs on."""
        spec, assignment, state = self._spec, self._assignment, self._context.state
        over = self._lifecycle.still_over()
        if over is not None:
            return over
        result = state.results.get(spec.first_replica)
        # Results and failures of earlier code do not count against the current code.
        tried = assignment is None or not other_code(spec, assignment)
        if result is not None and has_drained(spec, assignment, result):
            return self._lifecycle.over(ENDED, f"{result.outcome}: {result.reason}")
        if (
            result is not None
            and is_current_revision(spec, result.revision)
            and (assignment is None or result.revision >= assignment.revision)
            and (tried or result.outcome != "refused")
            # A worker whose assignment was withdrawn reports its job as stopped; only a user ends a job.
            and (spec.wanted == "ended" or result.outcome != "stopped")
        ):
            if result.outcome == "refused":
                return self._lifecycle.refused(result.reason, result.revision)
            return self._lifecycle.over(ENDED, f"{result.outcome}: {result.reason}")
        killed = self._lifecycle.killed()
        if killed is not None:
            return killed
        failures = state.failures.get(spec.first_replica)
        if failures is not None and tried and is_current_revision(spec, failures.revision):
            return self._given_up(failures)
        return None

    def _given_up(self, failures: Failures) -> Sequence[Action] | None:
        """Roll back an update that has never run well, or fail a job whose worker keeps failing."""
        policy, reason = self._context.rules.failures, describe_failures(failures)
        if self._spec.before is not None and policy.falls_back(failures) and not has_run_well(failures):
            return self._lifecycle.refused(reason, failures.revision)
        # While a worker of an earlier revision runs, the job does not fail.
        if not policy.gives_up(failures) or self._older_runs(failures.revision):
            return None
        return self._lifecycle.failed(reason, failures, failures.revision)

    def _older_runs(self, revision: int) -> bool:
        workers = self._context.state.workers.get(self._spec.first_replica, ())
        return any(worker.phase == "running" and worker.revision < revision for worker in workers)

    def _status_of(self, outcome: WorkerOutcome) -> JobStatus:
        """Return the job's status, with the counters that its next assignment continues."""
        status = JobStatus(outcome.phase, outcome.reason, self._context.now, self._revisions.last)
        last: Assignment | JobStatus | None = outcome.taken_back
        if last is None and outcome.phase == PENDING:
            last = self._status
        if last is not None and last.asked:
            status = replace(status, asked=last.asked, repeats=last.repeats, changed=last.changed)
        return status
