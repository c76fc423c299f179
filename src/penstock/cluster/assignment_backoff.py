"""Limits how often a job is assigned again for one request. Pure.

A decision that contradicts itself would create one revision after the other, each with a worker that starts.
So repeated assignments for the same request back off like restarts. Their number is stored in the assignment,
or in the status of its job when that was withdrawn, so that the next leader continues the count. A change by
the user is a new request, and is never delayed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256

from penstock.cluster.alarms import alarm_id
from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.cluster_state import ClusterState, Rules
from penstock.cluster.job_documents import Alarm, AssignmentCount, JobSpec, JobStatus
from penstock.cluster.leader_actions import Action, Clear, Raise
from penstock.replicas.replica_id import ReplicaId

ASSIGNED_TOO_OFTEN = "assigned-too-often"

Counted = Assignment | JobStatus | AssignmentCount
"""A document with the counters: an assignment, or what is kept of a withdrawn one."""

_LARGEST_EXPONENT = 60


def request_digest(spec: JobSpec) -> str:
    """Return a digest of everything that a user can change in a running job.

    >>> job = JobSpec("count", "", "")
    >>> request_digest(job) == request_digest(JobSpec("count", "", "", driver="n1"))
    False
    """
    asked = {
        "code": [spec.generation, spec.bundle, spec.entry],
        "settings": asdict(spec.settings),
        "wanted": [spec.driver, spec.wanted, spec.drain, spec.restarts, spec.after],
    }
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def repeats_of(before: Counted | None, asked: str, now: float, rules: Rules) -> int:
    """Return the count of a new assignment: 0 for the first of a request, or after a calm time."""
    if before is None or before.asked != asked or now - before.changed >= rules.calm_after:
        return 0
    return before.repeats + 1


def retry_at(before: Counted, asked: str, now: float, rules: Rules) -> float:
    """Return the time before which a job is not assigned again; 0 if it may be at once.

    >>> rules = Rules(free_repeats=2, first_wait=1.0, longest_wait=3.0)
    >>> made = Assignment("count", 1, 1, 1, "", "", "n1", asked="a", changed=10.0)
    >>> from dataclasses import replace
    >>> [retry_at(replace(made, repeats=count), "a", 10.0, rules) for count in range(6)]
    [0.0, 0.0, 11.0, 12.0, 13.0, 13.0]
    >>> retry_at(replace(made, repeats=5), "b", 10.0, rules)
    0.0
    """
    if before.asked != asked or before.repeats < rules.free_repeats:
        return 0.0
    doubled = min(before.repeats - rules.free_repeats, _LARGEST_EXPONENT)
    until = before.changed + min(rules.first_wait * 2.0**doubled, rules.longest_wait)
    # A clock that was set back must not delay a job for long.
    return until if before.changed <= now < until else 0.0


def pacing_alarms(
    desired: Mapping[str, JobSpec],
    actual: ClusterState,
    held: Mapping[ReplicaId, str],
    now: float,
    rules: Rules,
) -> list[Action]:
    """Raise an alarm for each job with a delayed assignment, and clear those that are over.

    ``held`` has a reason for each replica whose assignment is delayed; the first of a job counts.
    """
    jobs = {replica.job: replica for replica in sorted(held, reverse=True)}
    actions: list[Action] = []
    for _, replica in sorted(jobs.items()):
        alarm = _alarm(replica, held[replica], actual, now)
        if alarm.id not in actual.alarms:
            actions.append(Raise(alarm))
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.kind == ASSIGNED_TOO_OFTEN and alarm.subject not in jobs:
            if alarm.subject not in desired:
                actions.append(Clear(id, "the job no longer exists"))
            elif not _is_repeated(alarm.subject, actual, now, rules):
                actions.append(Clear(id, "it is no longer reassigned repeatedly"))
    return actions


def _alarm(replica: ReplicaId, reason: str, actual: ClusterState, now: float) -> Alarm:
    job = replica.job
    assignment, status = actual.assignments.get(replica), actual.statuses[job]
    last: Counted = assignment or status.replica_counts.get(str(replica.index)) or status
    told = (
        f"it was assigned {last.repeats + 1} times in a row for the same request, and would be again: "
        f"{reason}. New assignments back off; change the job's resources or nodes, or kill it"
    )
    revision, node = (assignment.revision, assignment.node) if assignment else (status.revision, "")
    evidence = {"revision": revision, "repeats": last.repeats, "node": node}
    return Alarm(alarm_id(ASSIGNED_TOO_OFTEN, job), ASSIGNED_TOO_OFTEN, job, told, now, evidence)


def _is_repeated(job: str, actual: ClusterState, now: float, rules: Rules) -> bool:
    last: list[Counted] = [actual.assignments[one] for one in actual.assigned.get(job, ())]
    status = actual.statuses.get(job)
    if status is not None:
        last += [*status.replica_counts.values(), *([] if last else [status])]
    return any(
        one.repeats >= rules.free_repeats and 0 <= now - one.changed < rules.calm_after for one in last
    )
