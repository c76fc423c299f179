"""Reconciles a job with replicas: plans the worker of each replica, then decides about all of them together.

- The job ends when a replica has drained its sources, or when it was killed and no replica is left.
- New code is given up only when no replica runs it and none may still start to run it.
- A replica that keeps failing is retried as long as another one runs.
- Revisions are counted across all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from penstock.cluster.alarms import degraded, replica_alarms, replica_failing, replicas_differ
from penstock.cluster.assignment_documents import ReplicaAssignment
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.job_documents import (
    ENDED,
    ENDING,
    PENDING,
    RUNNING,
    STARTING,
    Alarm,
    AssignmentCount,
    JobSpec,
    JobStatus,
)
from penstock.cluster.job_lifecycle import JobLifecycle
from penstock.cluster.job_reconciler import NO_ANSWER, JobDecision
from penstock.cluster.leader_actions import Action, Assign, Raise, Unassign, UpdateSpec
from penstock.cluster.placement_request import PlacementResult
from penstock.cluster.worker_planner import (
    DesiredWorker,
    PlacementIntent,
    Revisions,
    WorkerOutcome,
    WorkerPlanner,
)
from penstock.replicas.decisions.replica_set import (
    allows_node,
    has_warm_standby,
    nodes_of_other_replicas,
    nodes_used,
    replica_specs,
)
from penstock.replicas.decisions.replica_state import (
    ReplicaSafety,
    ReplicaState,
    SafetyLevel,
    chosen_runner,
    last_difference,
    replica_of,
    safety_of,
    shared_racks,
)
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class _PlannedReplica:
    """A replica with its planner and the plan."""

    id: ReplicaId
    planner: WorkerPlanner
    plan: WorkerOutcome | PlacementIntent


@final
class ReplicaSetReconciler:
    """Decides about the replicas of a job."""

    def __init__(self, spec: JobSpec, context: DecisionContext) -> None:
        state = context.state
        self._spec = spec
        self._context = context
        self._state = state
        # Whether to return to the previous code is decided here for all replicas, not by their planners.
        replicas = replica_specs(spec if spec.before is None else replace(spec, before=None))
        self._replicas = [replica_of(one, state, context.now, context.rules) for one in replicas]
        self._before = state.statuses.get(spec.name)
        self._assigned = {one: state.assignments[one] for one in state.assigned.get(spec.name, ())}
        numbers = [assignment.revision for assignment in self._assigned.values()]
        self._revisions = Revisions(max([*numbers, self._before.revision if self._before else 0]))
        self._lifecycle = JobLifecycle(
            spec,
            context,
            self._before,
            tuple(sorted(self._assigned)),
            tuple(state.staffed.get(spec.name, ())),
            self._revisions.last,
            self._before.differed if self._before is not None else 0.0,
        )

    def intents(self) -> Sequence[PlacementIntent]:
        """Return the workers that need a placement."""
        return [one.plan for one in self._planned if isinstance(one.plan, PlacementIntent)]

    def decide(self, answers: Mapping[ReplicaId, PlacementResult]) -> JobDecision:
        """Return the actions for the job, given the placements of its workers."""
        if self._ended is not None:
            return JobDecision(self._ended)
        outcomes = {one.id: self._outcome(one, answers) for one in self._planned}
        held = {replica: outcome.held for replica, outcome in outcomes.items() if outcome.held}
        return JobDecision(self._concluded(outcomes), held)

    def _outcome(
        self, replica: _PlannedReplica, answers: Mapping[ReplicaId, PlacementResult]
    ) -> WorkerOutcome:
        plan = replica.plan
        if isinstance(plan, WorkerOutcome):
            return plan
        return replica.planner.placed(plan, answers.get(replica.id, NO_ANSWER), self._revisions)

    @cached_property
    def _ended(self) -> Sequence[Action] | None:
        """The actions for a job that is over, ends or fails; None for a job that continues."""
        over = self._lifecycle.still_over()
        if over is not None:
            return over
        for one in self._replicas:
            if one.result is not None and one.result.outcome == "drained":
                return self._lifecycle.over(ENDED, f"drained: {one.result.reason}")
        killed = self._lifecycle.killed()
        if killed is not None:
            return killed
        hopeless = self._hopeless()
        return self._given_up(hopeless) if hopeless is not None else None

    @cached_property
    def _planned(self) -> Sequence[_PlannedReplica]:
        """The plan for each replica; empty for a job that does not continue."""
        if self._ended is not None:
            return ()
        runner, yielded = self._runner(), self._yielded()
        planned = []
        for one in self._replicas:
            planner = WorkerPlanner(self._worker(one, runner, yielded), self._context)
            planned.append(_PlannedReplica(one.id, planner, planner.plan()))
        return planned

    def _worker(
        self, replica: ReplicaState, runner: ReplicaId | None, yielded: Mapping[ReplicaId, frozenset[str]]
    ) -> DesiredWorker:
        """Return the desired worker of a replica."""
        spec, assignment = replica.spec, replica.assignment
        waits = runner is not None and replica.id != runner
        lineage = spec.forget if spec.fresh else 0
        new = ReplicaAssignment(replica.id.index, lineage, runs=not waits)
        role, told_to_run = new, assignment is not None
        if assignment is not None and assignment.membership is not None:
            # A worker that was told to run is not told to wait: a new one that waits replaces it.
            told_to_run = assignment.membership.runs
            role = replace(assignment.membership, runs=told_to_run or not waits)
        restart = None
        if waits and told_to_run and runner is not None:
            restart = f"{runner.title} is active, and this one is the standby"
        again = "it was restarted" if self._revisions.last else "it was submitted"
        return DesiredWorker(
            replica.id,
            spec,
            assignment,
            self._known_counts.get(str(replica.id.index)),
            "a replica is wanted" if replica.id.index else again,
            # The results of an earlier replica of this name, which was removed, do not count.
            history=max(spec.after, assignment.after) if assignment is not None else None,
            restart=restart,
            # It never moves to a node that runs another replica.
            may_move=spec.driver not in nodes_of_other_replicas(replica.id, self._assigned),
            vacated=yielded.get(replica.id, frozenset()),
            role=role,
            role_of_new=new,
        )

    def _yielded(self) -> dict[ReplicaId, frozenset[str]]:
        """Return the nodes that a replica's executors must leave for another replica that has no node.

        This happens when nodes were lost. The remaining nodes are shared equally among the replicas.
        """
        if not any(self._has_no_node(one) for one in self._replicas):
            return {}
        able = {name for name, node in self._state.nodes.items() if allows_node(self._spec, node)}
        used = {one.id: nodes_used(one.assignment) & able for one in self._replicas if one.assignment}
        free = able - set().union(*used.values())
        if free:
            return {}
        share = max(len(able) // len(self._replicas), 1)
        for replica in sorted(used, key=lambda replica: (-len(used[replica]), replica)):
            spare = sorted(used[replica] - {self._assigned[replica].node})
            if spare and len(used[replica]) > share:
                return {replica: frozenset(spare[share - len(used[replica]) :])}
        return {}

    def _has_no_node(self, replica: ReplicaState) -> bool:
        assignment = replica.assignment
        if assignment is None or self._context.is_lost(assignment):
            return True
        node = self._state.nodes.get(assignment.node)
        return node is not None and not allows_node(self._spec, node)

    def _runner(self) -> ReplicaId | None:
        """Return the replica that is to run while the other one waits; None without a warm standby."""
        if not has_warm_standby(self._spec):
            return None
        has_run = self._before is not None and self._before.phase in (RUNNING, ENDING)
        return chosen_runner(self._replicas, has_run=has_run, nodes=self._state.nodes)

    def _hopeless(self) -> ReplicaState | None:
        """Return a replica that cannot run the code, if no other replica can run it either."""
        most = self._most_failures
        troubled = [one for one in self._replicas if one.trouble(most)]
        for one in self._replicas:
            if one.runs_as_wanted and one not in troubled:
                return None
            if one.may_still_run(most) and not self._is_stranded(one):
                return None
        return troubled[0] if troubled else None

    @property
    def _most_failures(self) -> int:
        """The number of failures in a row after which a replica counts as unable to run the current code."""
        policy = self._context.rules.failures
        unproven = self._spec.before is not None and not self._is_proven_anywhere()
        return policy.fall_back_after if unproven else policy.give_up_after

    def _is_stranded(self, replica: ReplicaState) -> bool:
        """Return whether a replica has lost its node, and all nodes that it may use are full or taken.

        A node is taken if it has another replica of the job. A driver with executors also needs room for one
        executor: on its own node, or on another one if there are enough nodes for all replicas.
        """
        if replica.assignment is not None and not self._context.is_lost(replica.assignment):
            return False
        others = nodes_of_other_replicas(replica.id, self._assigned)
        asked, rooms = replica.spec.settings.resources, self._free_rooms(replica.id)
        able = [name for name, node in self._state.nodes.items() if allows_node(replica.spec, node)]
        free = [rooms[name] for name in able if name not in others]
        shares = len(able) // len(self._replicas) > 1
        for number, (cores, memory) in enumerate(free):
            left = (cores - asked.cores, memory - asked.memory)
            if min(left) < 0:
                continue
            beside = (left, *free[:number], *free[number + 1 :]) if shares else (left,)
            if not asked.executors or any(
                one[0] >= asked.executor_cores and one[1] >= asked.executor_memory for one in beside
            ):
                return False
        return True

    def _free_rooms(self, replica: ReplicaId) -> dict[str, tuple[int, int]]:
        """Return the cores and the memory of each node that are not assigned to other jobs or replicas."""
        free = {name: (node.cores, node.memory) for name, node in self._state.nodes.items()}
        for other, one in self._state.assignments.items():
            if other == replica:
                continue
            size = one.settings.resources
            places = [(slot.node, slot.cores, slot.memory) for slot in one.executors]
            for node, cores, memory in [(one.node, size.cores, size.memory), *places]:
                if node in free:
                    free[node] = (free[node][0] - cores, free[node][1] - memory)
        return free

    def _given_up(self, replica: ReplicaState) -> Sequence[Action]:
        reason, revision = replica.trouble(self._most_failures), self._revisions.last
        if replica.result is not None and replica.result.outcome == "refused":
            return self._lifecycle.refused(replica.result.reason, revision)
        if self._spec.before is not None and not self._is_proven_anywhere():
            return self._lifecycle.refused(reason, revision)
        return self._lifecycle.failed(reason, replica.failures, revision)

    def _is_proven_anywhere(self) -> bool:
        return any(self._context.is_proven(one.spec, one.id) for one in self._replicas)

    def _concluded(self, outcomes: Mapping[ReplicaId, WorkerOutcome]) -> list[Action]:
        """Combine the outcomes of the replicas into one status, alarms and actions."""
        status = self._status(outcomes)
        found = last_difference(self._replicas)
        differs: list[Action] = []
        if found is not None and found[1].at > status.differed:
            status = replace(status, differed=found[1].at)
            differs = [Raise(replicas_differ(self._spec.name, *found, self._context.now))]
        done = [
            action
            for outcome in outcomes.values()
            for action in outcome.actions
            if not isinstance(action, UpdateSpec)
        ]
        surplus = [
            Unassign(replica, "it has fewer replicas")
            for replica in sorted(self._assigned.keys() - outcomes.keys())
        ]
        alarms = replica_alarms(self._spec.name, self._wanted_alarms(status), self._state)
        # The alarm about a difference comes before the status that records it as reported.
        return [
            *differs,
            *self._spec_update(outcomes),
            *done,
            *surplus,
            *self._lifecycle.say(status),
            *alarms,
        ]

    def _spec_update(self, outcomes: Mapping[ReplicaId, WorkerOutcome]) -> list[Action]:
        """Combine the changes of the spec that the replicas request into one."""
        spec, reasons = self._spec, []
        if spec.before is not None and self._is_proven_anywhere():
            spec = replace(spec, before=None)  # Later failures are not blamed on the update.
            reasons.append("its new code runs successfully")
        for outcome in outcomes.values():
            for action in outcome.actions:
                if isinstance(action, UpdateSpec):
                    spec = replace(spec, driver=action.spec.driver)
                    reasons.append(action.reason)
        return [UpdateSpec(spec, "; ".join(reasons))] if reasons else []

    def _status(self, outcomes: Mapping[ReplicaId, WorkerOutcome]) -> JobStatus:
        phases = [outcome.phase for outcome in outcomes.values()]
        phase = next((one for one in (RUNNING, ENDING, STARTING) if one in phases), PENDING)
        safety, now = safety_of(self._spec, self._replicas), self._context.now
        before = self._before or JobStatus(PENDING, "", now)
        since = before.unsafe_since
        if safety.is_safe or safety.level is SafetyLevel.UNKNOWN:
            since = 0.0
        elif ReplicaSafety.parse(before.safety).is_safe and self._has_lost_one():
            since = now
        return replace(
            before,
            phase=phase,
            reason=self._reason(outcomes),
            since=now,
            revision=self._revisions.last,
            safety=str(safety),
            unsafe_since=since,
            replica_counts=self._counts(outcomes),
        )

    @property
    def _known_counts(self) -> Mapping[str, AssignmentCount]:
        return self._before.replica_counts if self._before is not None else {}

    def _counts(self, outcomes: Mapping[ReplicaId, WorkerOutcome]) -> dict[str, AssignmentCount]:
        """Return the counts for replicas without an assignment, by number; the next assignment uses them."""
        counts = {}
        for replica, outcome in outcomes.items():
            number, last = str(replica.index), outcome.taken_back
            if last is not None and last.asked:
                counts[number] = AssignmentCount(last.asked, last.repeats, last.changed)
            elif outcome.phase == PENDING and number in self._known_counts:
                counts[number] = self._known_counts[number]
        return counts

    def _has_lost_one(self) -> bool:
        """Return whether an assigned replica is out of step, rather than a newly requested one."""
        return any(one.assignment is not None and not one.in_step for one in self._replicas)

    def _reason(self, outcomes: Mapping[ReplicaId, WorkerOutcome]) -> str:
        """Return where the replicas run, and why a replica does not run."""
        if len(self._replicas) == 1:
            return outcomes[self._replicas[0].id].reason
        assigned = {one.id: one.assignment for one in self._replicas if one.assignment is not None}
        done = [action for outcome in outcomes.values() for action in outcome.actions]
        assigned |= {one.replica: one.assignment for one in done if isinstance(one, Assign)}
        reasons = []
        for one in self._replicas:
            trouble = one.trouble(self._context.rules.failures.alarm_after)
            reasons.append(f"{one.id.title}: {trouble or outcomes[one.id].reason}")
        shared = shared_racks(assigned, self._state.nodes) if self._state.rack_count > 1 else []
        return "; ".join([*reasons, *shared])

    def _wanted_alarms(self, status: JobStatus) -> list[Alarm]:
        most, job, now = self._context.rules.failures.alarm_after, self._spec.name, self._context.now
        failing = {one.id: one.trouble(most) for one in self._replicas if one.trouble(most)}
        wanted = [replica_failing(job, failing, now)] if failing else []
        # abs(): setting the clock back must not delay the alarm.
        if status.unsafe_since and abs(now - status.unsafe_since) >= self._context.rules.unsafe_grace:
            wanted.append(degraded(job, status))
        return wanted
