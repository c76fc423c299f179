"""The leader's decision: compares the desired with the actual state. Pure: the time is an argument.

For each job, in the order of names, the first of these that applies:

1. it is over: it stays so, across changes of the leader, until a client wants it to run again;
2. it has ended by itself;
3. its user ends it: its assignments are removed, and it has ended when no worker is left;
4. its code was refused: it is rolled back to the code before an update, or it has failed;
5. its worker has failed too often: the job has failed, and is restarted after a while;
6. nothing is assigned: it is placed;
7. its node is lost, and its worker with it: it is placed on another node;
8. its spec has changed: a new revision is placed, and the old worker stops when that is ready;
9. its executors differ from its spec: those are placed again.

A job with an unreadable document is left as it is (:mod:`penstock.cluster.unreadable_documents`). For a job
with replicas, 6 to 9 apply to each replica, and the others to the whole job
(:mod:`penstock.replicas.decisions.replica_set_reconciler`). Placements of all jobs are requested together.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.alarms import (
    executor_alarms,
    failing_alarms,
    node_alarms,
    shortage_alarms,
    stale_alarms,
)
from penstock.cluster.assignment_backoff import pacing_alarms
from penstock.cluster.cluster_state import ClusterState, Rules
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.job_reconciler import JobReconciler, SingleJobReconciler
from penstock.cluster.leader_actions import Action, Unassign
from penstock.cluster.placement_request import Placer
from penstock.cluster.unreadable_documents import leave_alone, unreadable_alarms
from penstock.replicas.decisions.replica_set import is_replicated
from penstock.replicas.decisions.replica_set_reconciler import ReplicaSetReconciler
from penstock.replicas.replica_id import ReplicaId


def reconcile(
    desired: Mapping[str, JobSpec],
    actual: ClusterState,
    now: float,
    *,
    epoch: int,
    placer: Placer,
    rules: Rules | None = None,
) -> list[Action]:
    """Return the actions of a leader, in order; an empty list if there is nothing to do."""
    rules = rules or Rules()
    context = DecisionContext(actual, now, epoch, rules)
    reconcilers = [
        _reconciler(desired[name], context) for name in sorted(desired.keys() - actual.unreadable.keys())
    ]
    requests = [intent.request for reconciler in reconcilers for intent in reconciler.intents()]
    placed = placer.place(requests, actual) if requests else {}
    decisions = [reconciler.decide(placed) for reconciler in reconcilers]
    actions = [action for decision in decisions for action in decision.actions]
    actions += [
        Unassign(replica, "the job is no longer wanted")
        for replica in sorted(actual.assignments)
        if replica.job not in actual.unreadable and not _is_wanted(replica, desired)
    ]
    actions += node_alarms(actual, context.lost)
    actions += stale_alarms(desired, actual)
    actions += failing_alarms(desired, actual, now, rules.failures)
    actions += executor_alarms(desired, actual, now, rules.failures)
    actions += shortage_alarms(desired, actual, now, rules)
    held = {replica: reason for decision in decisions for replica, reason in decision.held.items()}
    actions += pacing_alarms(desired, actual, held, now, rules)
    actions += unreadable_alarms(actual, now)
    return leave_alone(actions, actual)


def _is_wanted(replica: ReplicaId, desired: Mapping[str, JobSpec]) -> bool:
    """Whether a replica may be assigned: only a job with replicas has any but the first."""
    spec = desired.get(replica.job)
    return spec is not None and (replica.index == 0 or is_replicated(spec))


def _reconciler(spec: JobSpec, context: DecisionContext) -> JobReconciler:
    return ReplicaSetReconciler(spec, context) if is_replicated(spec) else SingleJobReconciler(spec, context)
