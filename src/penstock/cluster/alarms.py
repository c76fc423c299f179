"""The alarms: when each is raised, and when it is cleared automatically.

Failed and failing jobs, refused updates, failing executors, lost or unsupervised nodes, degraded or
differing replicas, jobs without a node. The alarms about delayed assignments and unreadable documents are in
the modules about these. It does not execute actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.cluster_state import ClusterState, Rules, is_current_revision, needed_nodes
from penstock.cluster.failure_policy import FailurePolicy, describe_failures
from penstock.cluster.job_documents import ENDED, ENDING, OVER, PENDING, Alarm, JobSpec, JobStatus
from penstock.cluster.leader_actions import Action, Clear, Raise
from penstock.cluster.worker_documents import Difference, Failures
from penstock.cluster.worker_supervision import is_executor
from penstock.replicas.decisions.replica_set import is_replicated, replica_specs
from penstock.replicas.replica_id import ReplicaId

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
    """The alarm about a failed job, which is not started again until the alarm is cleared."""
    evidence = {**(asdict(failures) if failures else {}), "revision": revision}
    return Alarm(alarm_id(JOB_FAILED, job), JOB_FAILED, job, reason, now, evidence)


def update_refused(spec: JobSpec, reason: str, now: float, revision: int) -> Alarm:
    """The alarm about an update that was rolled back."""
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
    """The alarm about a job that has been less safe than before for some time."""
    reason = f"{status.safety}: {status.reason}"
    return Alarm(alarm_id(DEGRADED, job), DEGRADED, job, reason, status.unsafe_since)


def replica_failing(job: str, troubles: Mapping[ReplicaId, str], now: float) -> Alarm:
    """The alarm about replicas that do not come up while others run."""
    failing = sorted(troubles)
    reason = "; ".join(f"{replica.title}: {troubles[replica]}" for replica in failing)
    evidence = {"replicas": [str(replica) for replica in failing]}
    return Alarm(alarm_id(REPLICA_FAILING, job), REPLICA_FAILING, job, reason, now, evidence)


def replicas_differ(job: str, replica: ReplicaId, found: Difference, now: float) -> Alarm:
    """The alarm about replicas with different results. It stays until it is cleared."""
    odd, first = replica.title, found.by_replica.title
    reason = (
        f"{odd} got another result than {first} in batch {found.batch} at {found.vertex}; the result of "
        f"{first} is committed, and {odd} was rebuilt: {found.reason}"
    )
    evidence = {"replica": str(replica), **asdict(found)}
    return Alarm(alarm_id(REPLICAS_DIFFER, job), REPLICAS_DIFFER, job, reason, now, evidence)


def replica_alarms(job: str, wanted: Iterable[Alarm], actual: ClusterState) -> list[Action]:
    """Raise the alarms about the replicas of a job, and clear those whose condition is over.

    A known alarm is raised again only if it is about other replicas: their number of failures changes often.
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
            told.append(Clear(id, "the condition no longer holds"))
    return told


def node_alarms(actual: ClusterState, lost: frozenset[str]) -> list[Action]:
    """Raise alarms about lost nodes and lost supervisors, and clear them when the node is back."""
    alive: dict[str, list[ReplicaId]] = {}
    for replica, workers in actual.workers.items() if lost else ():
        for worker in workers:
            alive.setdefault(worker.node, []).append(replica)
    wanted: dict[str, Alarm] = {}
    for node in sorted(lost):
        since = actual.absent_since[node]
        if node in alive:
            jobs = [replica.job for replica in sorted(alive[node], key=str)]
            told = ", ".join(sorted(set(jobs)))
            reason = f"the supervisor of node {node} is gone; {told} runs there unsupervised"
            alarm = Alarm(alarm_id(UNSUPERVISED, node), UNSUPERVISED, node, reason, since, {"jobs": jobs})
        else:
            had_work = node in needed_nodes(actual.assignments)
            left = "its jobs are placed on other nodes" if had_work else "nothing was assigned to it"
            reason = f"node {node} is gone; {left}"
            alarm = Alarm(alarm_id(NODE_LOST, node), NODE_LOST, node, reason, since)
        wanted[alarm.id] = alarm
    raised: list[Action] = [Raise(alarm) for id, alarm in wanted.items() if id not in actual.alarms]
    over = [
        Clear(
            id,
            f"node {alarm.subject} is back"
            if alarm.subject in actual.nodes
            else "the condition no longer holds",
        )
        for id, alarm in sorted(actual.alarms.items())
        if id not in wanted and _ends(alarm, actual)
    ]
    return raised + over


def _ends(alarm: Alarm, actual: ClusterState) -> bool:
    """Return whether an alarm about a node is over. One about a lost node stays until the node is back."""
    if alarm.kind == NODE_LOST:
        return alarm.subject in actual.nodes
    return alarm.kind == UNSUPERVISED


def _is_updated(spec: JobSpec, alarm: Alarm) -> bool:
    """Return whether a job whose update was refused now has other code than it was rolled back to."""
    if spec.submitted > alarm.since:
        return True
    back_to = alarm.evidence.get("back_to")
    if not isinstance(back_to, list) or not back_to or spec.before is not None:
        return False
    # An update of parameters alone changes the generation, which alarms of older versions lack.
    return back_to != [spec.bundle, spec.entry, spec.generation][: len(back_to)]


def stale_alarms(desired: Mapping[str, JobSpec], actual: ClusterState) -> list[Action]:
    """Clear alarms about jobs that were resubmitted, were updated successfully, or no longer exist."""
    found: list[Action] = []
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.subject in actual.unreadable:
            continue
        spec = desired.get(alarm.subject)
        if alarm.kind in (DEGRADED, REPLICA_FAILING) and (spec is None or not is_replicated(spec)):
            found.append(Clear(id, "the job no longer has replicas"))
        if alarm.kind == UPDATE_REFUSED and (spec is None or _is_updated(spec, alarm)):
            found.append(Clear(id, "a later update succeeded" if spec else "the job no longer exists"))
        if alarm.kind != JOB_FAILED:
            continue
        status = actual.statuses.get(alarm.subject)
        if spec is not None and status is not None and status.chances and status.phase != ENDED:
            continue  # It was restarted automatically, and has not run well yet.
        # An alarm of another version may lack the revision: it stays until it is cleared by hand.
        revision = alarm.evidence.get("revision")
        if spec is None or (isinstance(revision, int) and not is_current_revision(spec, revision)):
            found.append(Clear(id, "the job was restarted" if spec else "the job no longer exists"))
    return found


def failing_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, policy: FailurePolicy
) -> list[Action]:
    """Raise alarms about jobs whose worker keeps failing. Replicas have alarms of their own."""
    wanted: dict[str, Alarm] = {}
    for name in sorted(desired):
        spec, replica = desired[name], desired[name].first_replica
        failures = actual.failures.get(replica)
        if failures is None or is_replicated(spec) or _is_over(name, actual):
            continue
        workers, assignment = actual.workers.get(replica, ()), actual.assignments.get(replica)
        carried_on = any(one.phase == "running" and one.revision < failures.revision for one in workers)
        # An older request may still be assigned, because no node has room for the current one.
        is_assigned = assignment is not None and assignment.revision == failures.revision
        if policy.gives_up(failures) and not carried_on:
            continue  # The job fails or waits for room, which have alarms of their own.
        if (is_assigned or is_current_revision(spec, failures.revision)) and policy.alarms(failures, now):
            id = alarm_id(JOB_FAILING, name)
            wanted[id] = Alarm(id, JOB_FAILING, name, describe_failures(failures), now, asdict(failures))
    return _changes(JOB_FAILING, wanted, actual)


def executor_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, policy: FailurePolicy
) -> list[Action]:
    """Raise alarms about executors that keep failing, counted by the reports of their nodes."""
    found: dict[str, list[str]] = {}
    for node in sorted(actual.reports):
        for figures in actual.reports[node].workers:
            job = figures.replica.job
            failing = is_executor(figures.role) and figures.failures >= policy.alarm_after
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
    """Raise the alarms of a kind that are new, and clear those whose condition is over.

    A known alarm is not written again with each failure.
    """
    raised: list[Action] = [Raise(alarm) for id, alarm in wanted.items() if id not in actual.alarms]
    over = [id for id, alarm in sorted(actual.alarms.items()) if alarm.kind == kind and id not in wanted]
    return [*raised, *(Clear(id, "the condition no longer holds") for id in over)]


def lacking(desired: Mapping[str, JobSpec], actual: ClusterState) -> dict[str, tuple[str, ...]]:
    """Return the parts of each job that have no node: ``driver``, replicas, numbers of executors."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(desired.keys() - actual.unreadable.keys()):
        parts = _parts(desired[name], actual)
        if parts:
            found[name] = parts
    return found


def shortage_since(
    before: Mapping[str, float], desired: Mapping[str, JobSpec], actual: ClusterState, now: float
) -> dict[str, float]:
    """Return since when each job has had a part without a node, given the earlier times."""
    return {
        name: before.get(name, min(actual.statuses[name].since, now) if "driver" in parts else now)
        for name, parts in lacking(desired, actual).items()
    }


def shortage_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, rules: Rules
) -> list[Action]:
    """Raise an alarm about each job that has lacked a node for long, and clear it when all parts have one."""
    missing = lacking(desired, actual)
    actions: list[Action] = []
    for name, parts in missing.items():
        since = actual.shortage_since.get(name, now)
        alarm_of = alarm_id(NO_ROOM, name)
        known = actual.alarms.get(alarm_of)
        evidence = {"lacking": list(parts)}
        # The reason changes often, and is in the status of the job.
        if now - since >= rules.room_grace and (known is None or dict(known.evidence) != evidence):
            what = "no node can take it" if "driver" in parts else f"no node for {', '.join(parts)}"
            reason = f"{what}: {actual.statuses[name].reason}; add nodes, or request less (penstock scale)"
            actions.append(Raise(Alarm(alarm_of, NO_ROOM, name, reason, since, evidence)))
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.kind == NO_ROOM and alarm.subject not in {*missing, *actual.unreadable}:
            actions.append(Clear(id, "all parts of the job have a node"))
    return actions


def _parts(spec: JobSpec, actual: ClusterState) -> tuple[str, ...]:
    status = actual.statuses.get(spec.name)
    ends = spec.wanted == "ended" and not spec.drain
    if status is None or status.phase in (*OVER, ENDING) or ends:
        return ()
    if status.phase == PENDING:
        return ("driver",)
    replicated = is_replicated(spec)
    if not replicated and not spec.settings.resources.executors:
        return ()  # Most jobs: it has its node, or is PENDING.
    replicas = replica_specs(spec)
    parts = []
    for replica in replicas:
        assignment = actual.assignments.get(replica.id)
        title = replica.id.title
        whose = f" of {title}" if len(replicas) > 1 else ""
        if assignment is None or _is_gone(assignment, actual):
            parts += [title] if len(replicas) > 1 else []
            continue
        there = [slot for slot in assignment.executors if slot.node not in actual.absent_since]
        count = spec.settings.resources.executors - len(there)
        if count > 0:
            parts.append(f"{count} of {spec.settings.resources.executors} executors{whose}")
    return tuple(parts)


def _is_gone(assignment: Assignment, actual: ClusterState) -> bool:
    """Return whether a replica has lost its node together with its worker."""
    workers = actual.workers.get(assignment.replica, ())
    alive = any(worker.revision == assignment.revision for worker in workers)
    return assignment.node in actual.absent_since and not alive
