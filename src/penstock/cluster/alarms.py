"""Which alarms there are, when they are raised, and which of them end by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from penstock.cluster import phases
from penstock.cluster.actions import Action, Clear, Raise
from penstock.cluster.documents import Alarm, Difference, Failures, JobSpec, JobStatus
from penstock.cluster.members import job_of, replica_title
from penstock.cluster.replicas import is_replicated
from penstock.cluster.view import ClusterState, is_current_revision, needed_nodes

JOB_FAILED = "job-failed"
JOB_FAILING = "job-failing"
EXECUTOR_FAILING = "executor-failing"
UPDATE_REFUSED = "update-refused"
NODE_LOST = "node-lost"
UNSUPERVISED = "unsupervised"
DEGRADED = "degraded"
REPLICA_FAILING = "replica-failing"
REPLICAS_DIFFER = "replicas-differ"
UNREADABLE = "unreadable"
NO_ROOM = "no-room"


def alarm_id(kind: str, subject: str) -> str:
    """Return the id of an alarm: there is one of a kind for each subject.

    >>> alarm_id("node-lost", "n1")
    'node-lost.n1'
    """
    return f"{kind}.{subject}"


def job_failed(job: str, reason: str, now: float, revision: int, failures: Failures | None = None) -> Alarm:
    """A job is not started any more until somebody clears this."""
    evidence = {**(asdict(failures) if failures else {}), "revision": revision}
    return Alarm(alarm_id(JOB_FAILED, job), JOB_FAILED, job, reason, now, evidence)


def update_refused(spec: JobSpec, reason: str, now: float, revision: int) -> Alarm:
    """A job went back to the code before."""
    code = spec.before
    back_to = [code.bundle, code.entry, code.generation] if code is not None else []
    evidence = {
        "generation": spec.generation,
        "bundle": spec.bundle,
        "revision": revision,
        "back_to": back_to,
    }
    return Alarm(alarm_id(UPDATE_REFUSED, spec.name), UPDATE_REFUSED, spec.name, reason, now, evidence)


def degraded(job: str, status: JobStatus) -> Alarm:
    """A job is less safe than it was, for longer than it takes to notice."""
    reason = f"{status.safety}: {status.reason}"
    return Alarm(alarm_id(DEGRADED, job), DEGRADED, job, reason, status.unsafe_since)


def replica_failing(job: str, troubles: Mapping[str, str], now: float) -> Alarm:
    """Replicas of a job do not come up, while others run."""
    reason = "; ".join(f"{replica_title(name)}: {trouble}" for name, trouble in sorted(troubles.items()))
    evidence = {"replicas": sorted(troubles)}
    return Alarm(alarm_id(REPLICA_FAILING, job), REPLICA_FAILING, job, reason, now, evidence)


def replicas_differ(job: str, replica: str, found: Difference, now: float) -> Alarm:
    """Replicas have come to different results. It stays until somebody has looked into it."""
    odd, first = replica_title(replica), replica_title(found.by)
    reason = (
        f"{odd} came to another result than {first} in batch {found.batch} at {found.vertex}; that of "
        f"{first} counts, and {odd} has begun again: {found.reason}"
    )
    evidence = {"replica": replica, **asdict(found)}
    return Alarm(alarm_id(REPLICAS_DIFFER, job), REPLICAS_DIFFER, job, reason, now, evidence)


def replica_alarms(job: str, wanted: Iterable[Alarm], actual: ClusterState) -> list[Action]:
    """Raise alarms about the replicas of a job, and take back those that are over.

    One that is known is raised again only if it is about other replicas: their failures are counted on.
    """
    now = {alarm.id: alarm for alarm in wanted}
    told: list[Action] = []
    for alarm in now.values():
        known = actual.alarms.get(alarm.id)
        if known is None or dict(known.evidence) != dict(alarm.evidence):
            told.append(Raise(alarm))
    for kind in (DEGRADED, REPLICA_FAILING):
        id = alarm_id(kind, job)
        if id in actual.alarms and id not in now:
            told.append(Clear(id, "it is not so any more"))
    return told


def node_alarms(actual: ClusterState, lost: frozenset[str]) -> list[Action]:
    """Raise alarms for nodes that are gone or left alone, and take them back when they are there again."""
    alive: dict[str, list[str]] = {}
    for job in sorted(actual.workers):
        for worker in actual.workers[job]:
            alive.setdefault(worker.node, []).append(job_of(job))
    wanted: dict[str, Alarm] = {}
    for node in sorted(lost):
        since = actual.absent_since[node]
        if node in alive:
            jobs = ", ".join(sorted(set(alive[node])))
            reason = f"the supervisor of node {node} is gone; {jobs} runs on there, unwatched"
            alarm = Alarm(
                alarm_id(UNSUPERVISED, node), UNSUPERVISED, node, reason, since, {"jobs": alive[node]}
            )
        else:
            had_work = node in needed_nodes(actual.assignments)
            left = "what ran there is placed elsewhere" if had_work else "nothing was assigned to it"
            reason = f"node {node} is gone; {left}"
            alarm = Alarm(alarm_id(NODE_LOST, node), NODE_LOST, node, reason, since)
        wanted[alarm.id] = alarm
    raised: list[Action] = [Raise(alarm) for id, alarm in wanted.items() if id not in actual.alarms]
    over = [
        Clear(
            id, f"node {alarm.subject} is back" if alarm.subject in actual.nodes else "it is not so any more"
        )
        for id, alarm in sorted(actual.alarms.items())
        if id not in wanted and _ends(alarm, actual)
    ]
    return raised + over


def _ends(alarm: Alarm, actual: ClusterState) -> bool:
    """Whether an alarm about a node is over. That a node is lost stays known until it is back."""
    if alarm.kind == NODE_LOST:
        return alarm.subject in actual.nodes
    return alarm.kind == UNSUPERVISED


def _is_updated(spec: JobSpec, alarm: Alarm) -> bool:
    """Whether a job whose update was refused runs other code by now than that which it went back to."""
    if spec.submitted > alarm.since:
        return True
    back_to = alarm.evidence.get("back_to")
    if not isinstance(back_to, list) or not back_to or spec.before is not None:
        return False
    # An update of parameters alone has another generation; alarms of older versions do not have that.
    return back_to != [spec.bundle, spec.entry, spec.generation][: len(back_to)]


def stale_alarms(desired: Mapping[str, JobSpec], actual: ClusterState) -> list[Action]:
    """Take back what was said of a job that has been submitted anew, updated well, or is wanted no more."""
    found: list[Action] = []
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.subject in actual.unreadable:
            continue
        spec = desired.get(alarm.subject)
        if alarm.kind in (DEGRADED, REPLICA_FAILING) and (spec is None or not is_replicated(spec)):
            found.append(Clear(id, "the job has no replicas any more"))
        if alarm.kind == UPDATE_REFUSED and (spec is None or _is_updated(spec, alarm)):
            found.append(
                Clear(id, "another update has worked out" if spec else "there is no such job any more")
            )
        if alarm.kind != JOB_FAILED:
            continue
        status = actual.statuses.get(alarm.subject)
        if spec is not None and status is not None and status.chances and status.phase != phases.ENDED:
            continue  # It was started again by itself, and has not run well yet.
        # An alarm of another version may not say of which revision it is: it stays until it is cleared.
        revision = alarm.evidence.get("revision")
        if spec is None or (isinstance(revision, int) and not is_current_revision(spec, revision)):
            found.append(Clear(id, "the job was started anew" if spec else "there is no such job any more"))
    return found
