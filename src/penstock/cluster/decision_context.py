"""What a leader decides from at one moment, and what follows from it about nodes and workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.assignments import other_code
from penstock.cluster.cluster_state import ClusterState, Rules, is_current_revision
from penstock.cluster.failure_policy import has_run_well
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.worker_documents import WorkerInfo
from penstock.replicas.replica_id import ReplicaId


@dataclass(frozen=True)
class DecisionContext:
    """The state of the cluster, the time, and the rules."""

    state: ClusterState
    now: float
    epoch: int
    """Of the leader."""
    rules: Rules

    @cached_property
    def lost(self) -> frozenset[str]:
        """The nodes that have been missed for too long."""
        grace = self.rules.node_grace
        return frozenset(name for name, since in self.state.absent_since.items() if self.now - since >= grace)

    def is_lost(self, assignment: Assignment) -> bool:
        """Return whether a driver's node is lost. A worker that still holds its place lives anyway."""
        if assignment.node not in self.lost:
            return False
        workers = self.state.workers.get(assignment.replica, ())
        return not any(worker.revision == assignment.revision for worker in workers)

    def is_dead(self, assignment: Assignment) -> bool:
        """Return whether a driver's node is lost, and no worker of an earlier revision runs in its place."""
        return self.is_lost(assignment) and not self.runs(assignment.replica)

    def runs(self, replica: ReplicaId) -> bool:
        """Return whether any worker of a replica runs, of whatever revision."""
        return any(worker.phase == "running" for worker in self.state.workers.get(replica, ()))

    def runs_well(self, worker: WorkerInfo) -> bool:
        """Return whether a worker has run for long enough, or has committed a batch."""
        return self.rules.failures.ran_well(worker.progress, self.state.up_for(worker, self.now))

    def is_proven(self, spec: JobSpec, replica: ReplicaId) -> bool:
        """Return whether the code of an update has run well, in a worker that is up or in one that failed."""
        assignment = self.state.assignments.get(replica)
        if assignment is None or other_code(spec, assignment):
            return False
        failures = self.state.failures.get(replica)
        if failures is not None and is_current_revision(spec, failures.revision) and has_run_well(failures):
            return True
        return any(
            one.phase == "running" and is_current_revision(spec, one.revision) and self.runs_well(one)
            for one in self.state.workers.get(replica, ())
        )
