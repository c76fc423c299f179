"""How long ended and failed jobs are kept. Pure: the time is an argument.

A forgotten job leaves a tombstone with the revision up to which everything of the job may be removed. So
supervisors remove files because a document says so, and not because they find no job for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.alarms import NODE_LOST
from penstock.cluster.cluster_state import ClusterState, needed_nodes
from penstock.cluster.job_documents import ENDED, OVER, JobSpec
from penstock.cluster.leader_actions import Action, Clear, DropNode, DropTombstone, Forget, KeepRevision

_DAY = 86400.0
_AT_ONCE = 100
"""How many jobs are forgotten in one step at most."""


@dataclass(frozen=True)
class Retention:
    """The limits for jobs that are over."""

    seconds: float = 7 * _DAY
    """Seconds that an ended job is kept. A failed job is kept until its alarm is cleared,"""
    jobs: int = 1000
    """unless more jobs than this are over: then the oldest are forgotten, ended ones before failed ones."""


def retention_actions(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, rules: Retention | None = None
) -> list[Action]:
    """Return the actions that forget jobs, and that remove old tombstones and lost nodes.

    A job with node-kept data is kept: that data could not be found again.
    """
    rules = rules or Retention()
    over = [
        (status.phase != ENDED, status.since, name)
        for name, status in actual.statuses.items()
        if status.phase in OVER and name in desired and desired[name].settings.data_location != "node"
    ]
    most = len(over) - rules.jobs
    due: list[Forget] = []
    for number, (failed, since, name) in enumerate(sorted(over)):
        if number < most:
            due.append(Forget(name, f"more than {rules.jobs} jobs have ended or failed"))
        elif not failed and now - since >= rules.seconds:
            due.append(Forget(name, f"it has ended {(now - since) / _DAY:.1f} days ago"))
    # Checked last: of a thousand jobs that are over, few are due in one step.
    actions = [forget for forget in due if is_idle(forget.job, actual)]
    actions += [Forget(job, "the job no longer exists") for job in _orphans(desired, actual)]
    # The largest revision of forgotten jobs must be recorded first.
    actions = actions[:_AT_ONCE] if actual.revisions is not None else []
    largest = max((last_known_revision(action.job, actual) for action in actions), default=0)
    kept: list[Action] = []
    if largest > (actual.revisions or 0):
        kept.append(KeepRevision(largest, "jobs that are submitted later start above it"))
    return [*kept, *actions, *_old_tombstones(actual, now, rules), *_old_nodes(actual, now, rules)]


def is_idle(job: str, actual: ClusterState) -> bool:
    """Return whether nothing of a job is assigned, runs, or is unreadable."""
    return not any(job in known for known in (actual.unreadable, actual.assigned, actual.staffed))


def last_known_revision(job: str, actual: ClusterState) -> int:
    """Return the largest revision in any document about a job."""
    status = actual.statuses.get(job)
    results = [actual.results[one].revision for one in actual.finished.get(job, ())]
    failures = [actual.failures[one].revision for one in actual.failed.get(job, ())]
    return max([status.revision if status else 0, *results, *failures])


def _orphans(desired: Mapping[str, JobSpec], actual: ClusterState) -> list[str]:
    """Return the jobs that no longer exist, but have documents that a worker wrote since."""
    left = {*actual.finished, *actual.failed, *actual.statuses}
    return sorted(job for job in left - desired.keys() if is_idle(job, actual) and job not in actual.kept)


def _old_nodes(actual: ClusterState, now: float, rules: Retention) -> list[Action]:
    """Return the actions that stop expecting nodes that have been lost for long."""
    actions: list[Action] = []
    present = {*actual.nodes, *actual.unreadable_nodes, *needed_nodes(actual.assignments)}
    for id, alarm in sorted(actual.alarms.items()):
        node = alarm.subject
        if alarm.kind != NODE_LOST or node in present:
            continue
        if now - alarm.since >= rules.seconds:
            reason = f"it has been lost for {(now - alarm.since) / _DAY:.1f} days"
            if node in actual.known:
                actions.append(DropNode(node, reason))
            actions.append(Clear(id, reason))
    return actions


def _old_tombstones(actual: ClusterState, now: float, rules: Retention) -> list[Action]:
    stones = sorted(actual.tombstones.values(), key=lambda stone: (stone.at, stone.job))
    most = len(stones) - rules.jobs
    return [
        DropTombstone(stone.job, "all supervisors have had time to remove its files")
        for number, stone in enumerate(stones)
        if number < most or now - stone.at >= rules.seconds
    ]
