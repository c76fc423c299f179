"""The leader's decision: compares the desired with the actual state. Pure: the time is an argument.

For each job, in the order of names, the first of these that applies:

1. it is over: it stays so, whoever leads, until a client wants it to run again;
2. it has ended by itself;
3. it shall end: nothing is assigned to it any more, and it has ended when no worker is left;
4. its code was refused: the code before it, if there is one, is what is wanted again; else it has failed;
5. its worker has failed too often: the job has failed, and is tried again after a while;
6. nothing is assigned: it is placed;
7. its node is gone, and its worker with it: it is placed elsewhere;
8. it is wanted otherwise: a new revision is placed, and the old worker makes way when that is ready;
9. its executors are as wanted, or those that are not are placed anew.

A job of which some document cannot be read is left as it is (:mod:`penstock.cluster.unreadable_documents`).
Of a job with replicas, 6 to 9 are about each of them, and the others about all
(:mod:`penstock.replicas.decisions.replica_set_reconciler`). What needs a node is gathered first, of all jobs,
and then placed together.
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
    """Return what a leader has to do, in order. Nothing to do is an empty list."""
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
