"""Decides when a job ends, fails or is started again: the same for jobs with and without replicas."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.cluster.alarms import job_failed, replica_alarms, update_refused
from penstock.cluster.cluster_state import is_current_revision
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.job_documents import (
    ENDED,
    ENDING,
    FAILED,
    OVER,
    PENDING,
    RUNNING,
    Alarm,
    JobSpec,
    JobStatus,
)
from penstock.cluster.leader_actions import Action, Raise, SetStatus, Unassign, UpdateSpec
from penstock.cluster.worker_documents import Failures
from penstock.replicas.decisions.replica_set import is_replicated
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class JobLifecycle:
    """A job, with the state that its workers share."""

    spec: JobSpec
    context: DecisionContext
    status: JobStatus | None
    """The last status written."""
    assigned: tuple[ReplicaId, ...]
    """Its replicas that have an assignment."""
    staffed: tuple[ReplicaId, ...]
    """Those that may have workers."""
    revision: int
    """The largest revision assigned so far."""
    differed: float = 0.0
    """The time of the last difference between replicas that was reported as an alarm."""

    def still_over(self) -> list[Action] | None:
        """Keep a job ended or failed; return None if it is neither.

        A command that starts the job again changes its status as well. The result may still be missing, and a
        worker that was told to stop may write another one.
        """
        status, state = self.status, self.context.state
        if status is None or status.phase not in OVER:
            return None
        over = self.over(status.phase, status.reason)
        if status.phase != FAILED or not is_current_revision(self.spec, status.revision):
            return over
        if not over and self._gets_another_chance(status):
            return self._another_chance(status)
        # The leader may have died after it wrote the status and before it raised the alarm.
        failures = state.failures.get(self.spec.first_replica)
        alarm = job_failed(self.spec.name, status.reason, status.since, status.revision, failures)
        return [*over, *self._raised(alarm)]

    def killed(self) -> list[Action] | None:
        """End a job that was killed without draining; return None for other jobs."""
        if self.spec.wanted != "ended" or self.spec.drain:
            return None
        if self.assigned:
            return self.over(ENDING, "it was killed")
        for replica in self.staffed:
            workers = self.context.state.workers.get(replica, ())
            if workers:
                return self._stands(ENDING, f"its worker on {workers[0].node} ends its batch")
        return self.over(ENDED, "it was killed")

    def over(self, phase: str, reason: str) -> list[Action]:
        """Remove all assignments of the job, and write its status with the reason."""
        gone = [Unassign(replica, reason) for replica in self.assigned]
        replicated = phase != ENDING and is_replicated(self.spec)
        told = replica_alarms(self.spec.name, (), self.context.state) if replicated else []
        return [*gone, *self._stands(phase, reason), *told]

    def failed(self, reason: str, failures: Failures | None, revision: int) -> list[Action]:
        """Mark a job whose workers keep failing as failed; it is restarted after a while."""
        chances = self.status.chances if self.status is not None else 0
        seconds = self.context.rules.failures.second_chance(chances)
        reason = f"{reason}; it is restarted after {seconds / 60:g} minutes"
        alarm = job_failed(self.spec.name, reason, self.context.now, revision, failures)
        return [*self.over(FAILED, reason), *self._raised(alarm)]

    def refused(self, reason: str, revision: int) -> list[Action]:
        """Roll a refused update back to the previous code; fail the job if there is none."""
        spec, code, now = self.spec, self.spec.before, self.context.now
        if code is None:
            alarm = job_failed(spec.name, reason, now, revision)
            return [*self.over(FAILED, f"refused: {reason}"), *self._raised(alarm)]
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
        # Raised each time, and before the rollback: afterwards nothing records the refusal.
        alarm = update_refused(spec, reason, now, revision)
        return [Raise(alarm), UpdateSpec(back, f"the update was refused: {reason}")]

    def say(self, status: JobStatus) -> list[Action]:
        """Write the status of the job if it has changed."""
        before = self.status
        if before is not None:
            chances, since = before.chances, status.since
            if before.phase == status.phase:
                since = before.since
            if chances and status.phase == before.phase == RUNNING:
                well = self.context.now - before.since >= self.context.rules.failures.window
                chances = 0 if well else chances
            if (chances, since) != (status.chances, status.since):
                status = replace(status, chances=chances, since=since)
        return [SetStatus(self.spec.name, status)] if status != before else []

    def _stands(self, phase: str, reason: str) -> list[Action]:
        return self.say(JobStatus(phase, reason, self.context.now, self.revision, differed=self.differed))

    def _raised(self, alarm: Alarm) -> list[Action]:
        """Raise an alarm, unless there is one about the same revision."""
        known = self.context.state.alarms.get(alarm.id)
        same = known is not None and known.evidence.get("revision") == alarm.evidence.get("revision")
        return [] if same else [Raise(alarm)]

    def _gets_another_chance(self, status: JobStatus) -> bool:
        """Return whether a failed job is due to be restarted: the cause may have passed."""
        spec, state, policy = self.spec, self.context.state, self.context.rules.failures
        wanted = spec.wanted == "running" or spec.drain
        seconds = policy.second_chance(status.chances)
        if not wanted or not policy.is_due(status.since, seconds, self.context.now):
            return False
        failures = [state.failures[one] for one in state.failed.get(spec.name, ())]
        results = [state.results[one] for one in state.finished.get(spec.name, ())]
        refused = any(one.outcome == "refused" and is_current_revision(spec, one.revision) for one in results)
        given_up = any(policy.gives_up(one) and is_current_revision(spec, one.revision) for one in failures)
        return given_up and not refused

    def _another_chance(self, status: JobStatus) -> list[Action]:
        """Restart a failed job. Its alarm stays until the job has run well."""
        now = self.context.now
        reason = f"it is restarted {round(abs(now - status.since))} s after it failed"
        again = replace(
            status,
            phase=PENDING,
            reason=reason,
            since=now,
            safety="",
            unsafe_since=0.0,
            chances=status.chances + 1,
        )
        return [
            UpdateSpec(replace(self.spec, after=status.revision), reason),
            SetStatus(self.spec.name, again),
        ]
