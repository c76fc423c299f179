"""The state of each replica of a job, and the safety of the job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.assignments import has_drained, other_code
from penstock.cluster.cluster_state import UP, ClusterState, Rules, newest
from penstock.cluster.failure_policy import consecutive_failures, describe_failures
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_documents import Difference, Failures, Result, WorkerInfo
from penstock.replicas.decisions.replica_set import ReplicaSpec, has_warm_standby
from penstock.replicas.replica_id import ReplicaId

_PERCENT_STEP = 5
"""Rounding of percentages, so that the safety of a job does not change with each batch."""


class SafetyLevel(Enum):
    """How safe a job with replicas is. The values are text forms with a placeholder for the detail."""

    UNKNOWN = ""
    """The job has no replicas, or a later version has written another level."""
    K_SAFE = "k-safe"
    RECOVERING = "recovering ({}% caught up)"
    DEGRADED = "degraded (k={})"
    STANDBY_READY = "standby ready on {}"
    NO_STANDBY = "no standby"


@dataclass(frozen=True)
class ReplicaSafety:
    """How safe a job with replicas is, as shown in its status.

    >>> str(ReplicaSafety(SafetyLevel.DEGRADED, "0"))
    'degraded (k=0)'
    >>> ReplicaSafety.parse("standby ready on n1")
    ReplicaSafety(level=<SafetyLevel.STANDBY_READY: 'standby ready on {}'>, detail='n1')
    """

    level: SafetyLevel
    detail: str = ""
    """The percentage caught up, the remaining k, or the node of the standby."""

    def __str__(self) -> str:
        return self.level.value.format(self.detail)

    @staticmethod
    def parse(text: str) -> ReplicaSafety:
        """Parse the text form."""
        for level in SafetyLevel:
            before, _, after = level.value.partition("{}")
            found = re.fullmatch(f"{re.escape(before)}(.*){re.escape(after)}", text)
            if found is not None and str(ReplicaSafety(level, found[1])) == text:
                return ReplicaSafety(level, found[1])
        return ReplicaSafety(SafetyLevel.UNKNOWN)

    @property
    def is_safe(self) -> bool:
        """Whether the job is as safe as requested."""
        return self.level in (SafetyLevel.K_SAFE, SafetyLevel.STANDBY_READY)


@dataclass(frozen=True)
class ReplicaState:
    """The desired and the actual state of a replica."""

    id: ReplicaId
    spec: JobSpec
    assignment: Assignment | None
    workers: tuple[WorkerInfo, ...]
    failures: Failures | None = None
    """The failures of the current code since it last ran well."""
    result: Result | None = None
    """The result of the current code."""

    @property
    def leading(self) -> WorkerInfo | None:
        """The newest running worker."""
        return newest(tuple(worker for worker in self.workers if worker.phase == "running"))

    @property
    def runs_as_wanted(self) -> bool:
        """Whether the running worker is the assigned one and has the current code."""
        leading, assignment = self.leading, self.assignment
        if leading is None or assignment is None or other_code(self.spec, assignment):
            return False
        return leading.revision >= assignment.revision

    @property
    def can_run(self) -> bool:
        """Whether the assigned worker is ready to run at once, or runs."""
        revision = self.assignment.revision if self.assignment is not None else -1
        able = ("ready", "running")
        return any(worker.revision == revision and worker.phase in able for worker in self.workers)

    @property
    def in_step(self) -> bool:
        """Whether the job would continue without interruption if only this replica were left."""
        leading = self.leading
        return leading is not None and leading.joined is not None and leading.joined.in_step

    def trouble(self, most_failures: int) -> str:
        """Return why the replica does not run as requested and probably will not; else an empty text.

        ``most_failures`` in a row are too many.
        """
        if self.failures is not None and consecutive_failures(self.failures) >= most_failures:
            return describe_failures(self.failures)
        if self.result is not None and self.result.outcome == "refused" and not self.runs_as_wanted:
            return f"refused: {self.result.reason}"
        return ""

    def may_still_run(self, most_failures: int) -> bool:
        """Return whether the current code was started here and has neither run nor failed for good yet."""
        tried = self.assignment is not None and not other_code(self.spec, self.assignment)
        return tried and not self.runs_as_wanted and not self.trouble(most_failures)


def replica_of(replica: ReplicaSpec, actual: ClusterState, now: float, rules: Rules) -> ReplicaState:
    """Return the state of a replica, without failures and results of earlier code or runs."""
    id, spec = replica.id, replica.spec
    assignment = actual.assignments.get(id)
    history = max(spec.after, assignment.after if assignment is not None else 0)
    tried = assignment is not None and not other_code(spec, assignment)
    failures = actual.failures.get(id)
    workers = actual.workers.get(id, ())
    if failures is not None and (
        not tried
        or failures.revision <= history
        or any(_runs_well(worker, assignment, actual, now, rules) for worker in workers)
    ):
        failures = None
    result = actual.results.get(id)
    if (
        result is not None
        and not has_drained(spec, assignment, result)
        and (
            result.revision <= history
            or (assignment is not None and result.revision < assignment.revision)
            or (result.outcome == "refused" and not tried)
        )
    ):
        result = None
    return ReplicaState(id, spec, assignment, workers, failures, result)


def _runs_well(
    worker: WorkerInfo, assignment: Assignment | None, actual: ClusterState, now: float, rules: Rules
) -> bool:
    """Return whether the assigned worker runs well now, whatever its earlier failures."""
    if assignment is None or worker.revision != assignment.revision or worker.phase not in UP:
        return False
    return rules.failures.ran_well(worker.progress, actual.up_for(worker, now))


def chosen_runner(
    replicas: Sequence[ReplicaState], *, has_run: bool, nodes: Mapping[str, NodeInfo]
) -> ReplicaId:
    """Return which replica of a job with a warm standby is to run.

    It is the active replica, unless that is down and another one is ready. Two replicas can be marked as
    active after one that was given up could not be placed again; then it is the one that actually runs.
    """
    active = [one for one in replicas if one.assignment is not None and _is_active(one.assignment)]
    if not active:
        able = [one for one in replicas if one.can_run] or list(replicas)
        return able[0].id
    best = min(active, key=lambda one: (_is_down(one, has_run, nodes), one.leading is None, one.id))
    if _is_down(best, has_run, nodes):
        for other in replicas:
            if other is not best and other.can_run:
                return other.id
    return best.id


def _is_active(assignment: Assignment) -> bool:
    return assignment.membership is None or assignment.membership.runs


def _is_down(replica: ReplicaState, has_run: bool, nodes: Mapping[str, NodeInfo]) -> bool:
    """Return whether a replica that should run does not, and would start later than one that is ready."""
    assignment = replica.assignment
    if assignment is None or replica.leading is not None:
        return assignment is None
    if replica.failures is not None or replica.result is not None:
        return True
    if other_code(replica.spec, assignment):
        return True  # It has old code assigned, and found no node for the current code.
    gone = not any(worker.phase != "stopped" for worker in replica.workers)
    return gone and (has_run or assignment.node not in nodes)


def safety_of(spec: JobSpec, replicas: Sequence[ReplicaState]) -> ReplicaSafety:
    """Return the safety of a job."""
    if has_warm_standby(spec):
        waiting = [one.assignment for one in replicas if one.can_run and one.leading is None]
        ready = [one.node for one in waiting if one is not None and not _is_active(one)]
        if ready:
            return ReplicaSafety(SafetyLevel.STANDBY_READY, ready[0])
        return ReplicaSafety(SafetyLevel.NO_STANDBY)
    k = spec.settings.replicas.k
    if k == 0:
        return ReplicaSafety(SafetyLevel.UNKNOWN)
    in_step = sum(one.in_step for one in replicas)
    if in_step > k:
        return ReplicaSafety(SafetyLevel.K_SAFE)
    behind = [
        one.leading.joined.caught_up
        for one in replicas
        if one.leading is not None and one.leading.joined is not None and not one.in_step
    ]
    if behind:
        return ReplicaSafety(SafetyLevel.RECOVERING, str(_rounded(min(behind))))
    return ReplicaSafety(SafetyLevel.DEGRADED, str(max(in_step - 1, 0)))


def _rounded(share: float) -> int:
    """Return a percentage, rounded down to a multiple of 5.

    >>> [_rounded(share) for share in (0.0, 0.049, 0.37, 0.999, 1.0)]
    [0, 0, 35, 95, 100]
    """
    return int(min(max(share, 0.0), 1.0) * 100) // _PERCENT_STEP * _PERCENT_STEP


def last_difference(replicas: Sequence[ReplicaState]) -> tuple[ReplicaId, Difference] | None:
    """Return the newest difference that a replica has reported, and that replica."""
    found = [
        (worker.joined.differed.at, one.id, worker.joined.differed)
        for one in replicas
        for worker in one.workers
        if worker.joined is not None and worker.joined.differed is not None
    ]
    if not found:
        return None
    _, replica, difference = max(found, key=lambda item: (item[0], item[1]))
    return replica, difference


def shared_racks(assignments: Mapping[ReplicaId, Assignment], nodes: Mapping[str, NodeInfo]) -> list[str]:
    """Describe which replicas share a rack although the cluster has several.

    >>> nodes = {name: NodeInfo(name, "", 1, 1, rack=name[0]) for name in ("a1", "a2", "b1")}
    >>> assigned = [Assignment("count", 1, 1, 1, "", "", "a1"), Assignment("count~1", 1, 1, 1, "", "", "a2")]
    >>> shared_racks({one.replica: one for one in assigned}, nodes)
    ['replica 1 shares rack a with replica 0']
    """
    first: dict[str, ReplicaId] = {}
    found = []
    for replica in sorted(assignments):
        node = nodes.get(assignments[replica].node)
        if node is not None and first.setdefault(node.rack, replica) != replica:
            found.append(f"{replica.title} shares rack {node.rack} with {first[node.rack].title}")
    # Checked last: there are many more nodes than replicas.
    return found if found and len({node.rack for node in nodes.values()}) > 1 else []
