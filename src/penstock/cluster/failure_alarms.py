"""Alarms about workers and executors that keep failing while their jobs go on; they end by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from penstock.cluster.actions import Action, Clear, Raise
from penstock.cluster.alarms import EXECUTOR_FAILING, JOB_FAILING, alarm_id
from penstock.cluster.documents import Alarm, JobSpec
from penstock.cluster.failure_policy import FailurePolicy, describe_failures
from penstock.cluster.members import job_of
from penstock.cluster.phases import OVER
from penstock.cluster.replicas import is_replicated
from penstock.cluster.view import ClusterState, is_current_revision

_EXECUTOR = "executor-"


def failing_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, policy: FailurePolicy
) -> list[Action]:
    """Tell of jobs whose worker keeps failing and is started again. Replicas have alarms of their own."""
    wanted: dict[str, Alarm] = {}
    for name in sorted(desired):
        spec, failures = desired[name], actual.failures.get(name)
        if failures is None or is_replicated(spec) or _is_over(name, actual):
            continue
        workers, assignment = actual.workers.get(name, ()), actual.assignments.get(name)
        carried_on = any(one.phase == "running" and one.revision < failures.revision for one in workers)
        # What is wanted otherwise now may be assigned still, because no node can take it as it is wanted.
        is_assigned = assignment is not None and assignment.revision == failures.revision
        if policy.gives_up(failures) and not carried_on:
            continue  # The job fails, or waits for room: alarms of their own.
        if (is_assigned or is_current_revision(spec, failures.revision)) and policy.alarms(failures, now):
            id = alarm_id(JOB_FAILING, name)
            wanted[id] = Alarm(id, JOB_FAILING, name, describe_failures(failures), now, asdict(failures))
    return _changes(JOB_FAILING, wanted, actual)


def executor_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, policy: FailurePolicy
) -> list[Action]:
    """Tell of executors that keep failing; how often is in the reports of their nodes."""
    found: dict[str, list[str]] = {}
    for node in sorted(actual.reports):
        for figures in actual.reports[node].workers:
            job = job_of(figures.job)
            failing = figures.role.startswith(_EXECUTOR) and figures.failures >= policy.alarm_after
            if failing and job in desired and not _is_over(job, actual):
                why = f": {figures.reason}" if figures.reason else ""
                found.setdefault(job, []).append(
                    f"{figures.role} on {node} has failed {figures.failures} times in a row{why}"
                )
    wanted = {}
    for job, reasons in found.items():
        id = alarm_id(EXECUTOR_FAILING, job)
        wanted[id] = Alarm(id, EXECUTOR_FAILING, job, "; ".join(reasons), now)
    return _changes(EXECUTOR_FAILING, wanted, actual)


def _is_over(job: str, actual: ClusterState) -> bool:
    status = actual.statuses.get(job)
    return status is not None and status.phase in OVER


def _changes(kind: str, wanted: Mapping[str, Alarm], actual: ClusterState) -> list[Action]:
    """Raise alarms of a kind that are not known, and take back those that are over.

    One that is known is not written again with each failure.
    """
    raised: list[Action] = [Raise(alarm) for id, alarm in wanted.items() if id not in actual.alarms]
    over = [id for id, alarm in sorted(actual.alarms.items()) if alarm.kind == kind and id not in wanted]
    return [*raised, *(Clear(id, "it is not so any more") for id in over)]
