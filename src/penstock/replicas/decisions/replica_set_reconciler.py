"""Reconciles a job with replicas: each replica like a job, then all together.

- It is over when one of them has drained its sources, or when it was killed and none of them is left.
- Its code is given up only when none of them runs it, and none may still come to run it.
- A replica that keeps failing is tried again and again while another one runs.
- Revisions are counted over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.cluster.alarms import degraded, job_failed, replica_alarms, replica_failing, replicas_differ
from penstock.cluster.cluster_state import ClusterState, Rules
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
    JobSpec,
    JobStatus,
    ReplicaAssignment,
)
from penstock.cluster.job_reconciler import JobIntent, JobReconciler
from penstock.cluster.leader_actions import Action, Assign, Raise, SetStatus, Unassign, UpdateSpec
from penstock.replicas.decisions.replica_set import (
    allows_node,
    has_warm_standby,
    nodes_of_other_replicas,
    nodes_used,
    replica_specs,
)
from penstock.replicas.decisions.replica_state import (
    ReplicaState,
    chosen_runner,
    is_safe,
    last_difference,
    replica_of,
    safety_of,
    shared_racks,
)
from penstock.replicas.replica_id import replica_number, replica_title


class ReplicaSetReconciler(JobReconciler):
    """Decides about the replicas of one job."""

    def __init__(self, actual: ClusterState, now: float, epoch: int, rules: Rules, spec: JobSpec) -> None:
        super().__init__(actual, now, epoch, rules)
        self._spec = spec
        # That the code before is given up is decided for all of them.
        members = replica_specs(spec if spec.before is None else replace(spec, before=None))
        self._replicas = [replica_of(member, actual, now, rules) for member in members]
        self._before = actual.statuses.get(spec.name)
        self._assigned = {name: actual.assignments[name] for name in actual.assigned.get(spec.name, ())}
        numbers = [assignment.revision for assignment in self._assigned.values()]
        self._given = max([*numbers, self._before.revision if self._before else 0])
        self._runner = self._chosen()
        self._yielded = self._yields()
        self._parts = False
        """Whether something is done about each replica by itself."""

    def job(self, spec: JobSpec) -> Sequence[JobIntent]:
        """Return what to do about the job."""
        if self._before is not None and self._before.phase in OVER:
            return self._still_over(spec, None, self._before)
        for one in self._replicas:
            if one.result is not None and one.result.outcome == "drained":
                return self._over(spec, None, ENDED, f"drained: {one.result.reason}")
        if spec.wanted == "ended" and not spec.drain:
            return self._ending(spec, None)
        hopeless = self._hopeless()
        if hopeless is not None:
            return self._given_up(hopeless)
        self._parts = True
        intents: list[JobIntent] = []
        for one in self._replicas:
            intents += self._running(one.spec, one.assignment)
        others = set(self._assigned) - {one.name for one in self._replicas}
        return [*intents, *(Unassign(name, "it has fewer replicas") for name in sorted(others))]

    def _yields(self) -> dict[str, frozenset[str]]:
        """Return the nodes that the executors of one replica leave to another, which finds none.

        Nodes may have been lost since they got there. All of them have the same share of what is left.
        """
        if not any(self._has_no_node(one) for one in self._replicas):
            return {}
        able = {name for name, node in self.actual.nodes.items() if allows_node(self._spec, node)}
        used = {one.name: nodes_used(one.assignment) & able for one in self._replicas if one.assignment}
        free = able - set().union(*used.values())
        if free:
            return {}
        share = max(len(able) // len(self._replicas), 1)
        for name in sorted(used, key=lambda name: (-len(used[name]), replica_number(name))):
            spare = sorted(used[name] - {self._assigned[name].node})
            if spare and len(used[name]) > share:
                return {name: frozenset(spare[share - len(used[name]) :])}
        return {}

    def _has_no_node(self, replica: ReplicaState) -> bool:
        assignment = replica.assignment
        if assignment is None or self._is_lost(assignment):
            return True
        node = self.actual.nodes.get(assignment.node)
        return node is not None and not allows_node(self._spec, node)

    def _left_by_executors(self, spec: JobSpec) -> frozenset[str]:
        return self.lost | self._yielded.get(spec.name, frozenset())

    def _chosen(self) -> str:
        if not has_warm_standby(self._spec):
            return ""
        has_run = self._before is not None and self._before.phase in (RUNNING, ENDING)
        return chosen_runner(self._replicas, has_run=has_run, nodes=self.actual.nodes)

    def _hopeless(self) -> ReplicaState | None:
        """Return a replica that cannot run the code, if all others cannot either."""
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
        """After how many failures in a row a replica is taken to be unable to run the code that is wanted."""
        policy = self.rules.failures
        unproven = self._spec.before is not None and not self._is_proven_anywhere()
        return policy.fall_back_after if unproven else policy.give_up_after

    def _is_stranded(self, replica: ReplicaState) -> bool:
        """Whether a replica has lost its node, and all that it may use are full or have another replica.

        Of a job over several nodes, a driver needs room for one of its executors as well: on its own node, or
        on another one if there are enough of them for all replicas.
        """
        if replica.assignment is not None and not self._is_lost(replica.assignment):
            return False
        others = nodes_of_other_replicas(replica.name, self._assigned)
        asked, rooms = replica.spec.settings.resources, self._free_rooms(replica.name)
        able = [name for name, node in self.actual.nodes.items() if allows_node(replica.spec, node)]
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

    def _free_rooms(self, replica: str) -> dict[str, tuple[int, int]]:
        """Return the cores and the memory of each node that no other job or replica is assigned."""
        free = {name: (node.cores, node.memory) for name, node in self.actual.nodes.items()}
        for name, one in self.actual.assignments.items():
            if name == replica:
                continue
            size = one.settings.resources
            places = [(slot.node, slot.cores, slot.memory) for slot in one.executors]
            for node, cores, memory in [(one.node, size.cores, size.memory), *places]:
                if node in free:
                    free[node] = (free[node][0] - cores, free[node][1] - memory)
        return free

    def _given_up(self, replica: ReplicaState) -> Sequence[JobIntent]:
        reason = replica.trouble(self._most_failures)
        if replica.result is not None and replica.result.outcome == "refused":
            return self._refused(self._spec, None, replica.result.reason, self._given)
        if self._spec.before is not None and not self._is_proven_anywhere():
            return self._refused(self._spec, None, reason, self._given)
        reason = self._until_tried_again(self._spec.name, reason)
        alarm = job_failed(self._spec.name, reason, self.now, self._given, replica.failures)
        return [*self._over(self._spec, None, FAILED, reason), *self._raised(alarm)]

    def _is_proven_anywhere(self) -> bool:
        return any(self._is_proven(one.spec, one.name) for one in self._replicas)

    def _over(self, spec: JobSpec, assignment: Assignment | None, phase: str, reason: str) -> list[Action]:  # noqa: ARG002
        gone = [Unassign(name, reason) for name in sorted(self._assigned)]
        told = [] if phase == ENDING else self._alarms([])
        return [*gone, *self._stands(phase, reason), *told]

    def _ending(self, spec: JobSpec, assignment: Assignment | None) -> list[Action]:
        if self._assigned:
            return self._over(spec, assignment, ENDING, "it was killed")
        for name in self.actual.staffed.get(spec.name, ()):
            if self.actual.workers[name]:
                return self._stands(
                    ENDING, f"its worker on {self.actual.workers[name][0].node} ends its batch"
                )
        return self._over(spec, assignment, ENDED, "it was killed")

    def _stands(self, phase: str, reason: str) -> list[Action]:
        differed = self._before.differed if self._before is not None else 0.0
        return self._say(self._spec.name, JobStatus(phase, reason, self.now, self._given, differed=differed))

    def _status(
        self,
        spec: JobSpec,
        phase: str,
        reason: str,
        revision: int | None = None,  # noqa: ARG002
        taken_back: Assignment | None = None,  # noqa: ARG002
    ) -> list[Action]:
        """Say how a replica stands. What is said of the job is made of that in the end."""
        return [SetStatus(spec.name, JobStatus(phase, reason, self.now))]

    def _revision(self, spec: JobSpec) -> int:  # noqa: ARG002
        return self._given

    def _next_revision(self, spec: JobSpec) -> int:  # noqa: ARG002
        self._given += 1
        return self._given

    def _after(self, spec: JobSpec, before: Assignment | None, revision: int) -> int:
        """What became of a replica of this name that was wanted no more is history for a new one."""
        return revision - 1 if before is None else max(spec.after, before.after)

    def _why_new(self, spec: JobSpec) -> str:
        return "a replica is wanted" if replica_number(spec.name) else super()._why_new(spec)

    def _membership(self, spec: JobSpec, before: Assignment | None) -> ReplicaAssignment | None:
        runs = not has_warm_standby(spec) or spec.name == self._runner
        if before is not None and before.membership is not None:
            # Whoever was told to run is replaced by a new worker that waits, and not told to wait itself.
            runs = runs or before.membership.runs
            return (
                before.membership if before.membership.runs == runs else replace(before.membership, runs=runs)
            )
        lineage = spec.forget if spec.fresh else 0
        return ReplicaAssignment(replica_number(spec.name), lineage, runs)

    def _changed(self, spec: JobSpec, assignment: Assignment) -> str | None:
        change = super()._changed(spec, assignment)
        told_to_run = assignment.membership is None or assignment.membership.runs
        if change is None and has_warm_standby(spec) and told_to_run and spec.name != self._runner:
            return f"{replica_title(self._runner)} is active, and this one is the standby"
        return change

    def _moved(self, spec: JobSpec, assignment: Assignment) -> str | None:
        """Return why the replica moves. It never moves to a node that runs another replica."""
        if spec.driver and spec.driver in nodes_of_other_replicas(spec.name, self._assigned):
            return None
        return super()._moved(spec, assignment)

    def concluded(self, actions: list[Action]) -> list[Action]:
        """Make one status of those of the replicas, and tell people what they should know."""
        if not self._parts:
            return actions
        said = {action.job: action.status for action in actions if isinstance(action, SetStatus)}
        done = [action for action in actions if isinstance(action, Assign | Unassign)]
        status = self._group_status(said, done)
        found = last_difference(self._replicas)
        differs: list[Action] = []
        if found is not None and found[1].at > status.differed:
            status = replace(status, differed=found[1].at)
            differs = [Raise(replicas_differ(self._spec.name, *found, self.now))]
        told = self._alarms(self._wanted_alarms(status))
        # People are told of a difference before it is noted that they were.
        return [*differs, *self._respecified(actions), *done, *self._say(self._spec.name, status), *told]

    def _respecified(self, actions: list[Action]) -> list[Action]:
        """Make one change of what is wanted of the job of all that its replicas ask for."""
        spec, reasons = self._spec, []
        if spec.before is not None and self._is_proven_anywhere():
            spec = replace(spec, before=None)  # From now on a failure is not one of the update.
            reasons.append("its new code runs successfully")
        for action in actions:
            if isinstance(action, UpdateSpec):
                spec = replace(spec, driver=action.spec.driver)
                reasons.append(action.reason)
        return [UpdateSpec(spec, "; ".join(reasons))] if reasons else []

    def _group_status(self, said: dict[str, JobStatus], done: list[Assign | Unassign]) -> JobStatus:
        phases = [status.phase for status in said.values()]
        phase = next((one for one in (RUNNING, ENDING, STARTING) if one in phases), PENDING)
        safety = safety_of(self._spec, self._replicas)
        before = self._before or JobStatus(PENDING, "", self.now)
        since = before.unsafe_since
        if is_safe(safety) or not safety:
            since = 0.0
        elif is_safe(before.safety) and self._has_lost_one():
            since = self.now
        reason = self._reason(said, done)
        return replace(
            before,
            phase=phase,
            reason=reason,
            since=self.now,
            revision=self._given,
            safety=safety,
            unsafe_since=since,
        )

    def _has_lost_one(self) -> bool:
        """Whether a replica is missing that was there, rather than one that was wanted only now."""
        return any(one.assignment is not None and not one.in_step for one in self._replicas)

    def _reason(self, said: dict[str, JobStatus], done: list[Assign | Unassign]) -> str:
        """Say where the replicas are; of one that does not run, why."""
        assigned = {one.name: one.assignment for one in self._replicas if one.assignment is not None}
        assigned |= {action.job: action.assignment for action in done if isinstance(action, Assign)}
        reasons = []
        for one in self._replicas:
            trouble = one.trouble(self.rules.failures.alarm_after)
            reasons.append(f"{replica_title(one.name)}: {trouble or said[one.name].reason}")
        if len(reasons) == 1:
            return said[self._replicas[0].name].reason
        shared = shared_racks(assigned, self.actual.nodes) if self.actual.rack_count > 1 else []
        return "; ".join([*reasons, *shared])

    def _wanted_alarms(self, status: JobStatus) -> list[Alarm]:
        most, job = self.rules.failures.alarm_after, self._spec.name
        failing = {one.name: one.trouble(most) for one in self._replicas if one.trouble(most)}
        wanted = [replica_failing(job, failing, self.now)] if failing else []
        # A clock that was set back delays nothing.
        if status.unsafe_since and abs(self.now - status.unsafe_since) >= self.rules.unsafe_grace:
            wanted.append(degraded(job, status))
        return wanted

    def _alarms(self, wanted: list[Alarm]) -> list[Action]:
        return replica_alarms(self._spec.name, wanted, self.actual)
