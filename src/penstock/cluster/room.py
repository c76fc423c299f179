"""Jobs that lack a node for long: for all of them, for a replica, or for executors. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.actions import Action, Clear, Raise
from penstock.cluster.alarms import NO_ROOM, alarm_id
from penstock.cluster.documents import Alarm, Assignment, JobSpec
from penstock.cluster.members import replica_title
from penstock.cluster.phases import ENDING, OVER, PENDING
from penstock.cluster.replicas import is_replicated, replica_specs
from penstock.cluster.view import ClusterState, Rules


def lacking(desired: Mapping[str, JobSpec], actual: ClusterState) -> dict[str, tuple[str, ...]]:
    """Return what has no node of each job that lacks one: ``driver``, replicas, numbers of executors."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(desired.keys() - actual.unreadable.keys()):
        parts = _parts(desired[name], actual)
        if parts:
            found[name] = parts
    return found


def shortage_since(
    before: Mapping[str, float], desired: Mapping[str, JobSpec], actual: ClusterState, now: float
) -> dict[str, float]:
    """Return since when each job that lacks a node does, given what was known of that before."""
    return {
        name: before.get(name, min(actual.statuses[name].since, now) if "driver" in parts else now)
        for name, parts in lacking(desired, actual).items()
    }


def shortage_alarms(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, rules: Rules
) -> list[Action]:
    """Raise an alarm for each job that has lacked a node for long, and take it back when it has all."""
    missing = lacking(desired, actual)
    actions: list[Action] = []
    for name, parts in missing.items():
        since = actual.shortage_since.get(name, now)
        alarm_of = alarm_id(NO_ROOM, name)
        known = actual.alarms.get(alarm_of)
        evidence = {"lacking": list(parts)}
        # What is said of the reason changes all the time, and is in the status of the job.
        if now - since >= rules.room_grace and (known is None or dict(known.evidence) != evidence):
            what = "no node can take it" if "driver" in parts else f"no node for {', '.join(parts)}"
            reason = f"{what}: {actual.statuses[name].reason}; add nodes, or ask for less (penstock scale)"
            actions.append(Raise(Alarm(alarm_of, NO_ROOM, name, reason, since, evidence)))
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.kind == NO_ROOM and alarm.subject not in {*missing, *actual.unreadable}:
            actions.append(Clear(id, "it has all the nodes that it needs"))
    return actions


def _parts(spec: JobSpec, actual: ClusterState) -> tuple[str, ...]:
    status = actual.statuses.get(spec.name)
    ends = spec.wanted == "ended" and not spec.drain
    if status is None or status.phase in (*OVER, ENDING) or ends:
        return ()
    if status.phase == PENDING:
        return ("driver",)
    replicated = is_replicated(spec)
    if not replicated and not spec.resources.executors:
        return ()  # As most jobs are: it has its node, or is PENDING.
    members = replica_specs(spec) if replicated else [spec]
    parts = []
    for member in members:
        assignment = actual.assignments.get(member.name)
        whose = f" of {replica_title(member.name)}" if len(members) > 1 else ""
        if assignment is None or _is_gone(assignment, actual):
            parts += [replica_title(member.name)] if len(members) > 1 else []
            continue
        there = [slot for slot in assignment.executors if slot.node not in actual.absent_since]
        count = spec.resources.executors - len(there)
        if count > 0:
            parts.append(f"{count} of {spec.resources.executors} executors{whose}")
    return tuple(parts)


def _is_gone(assignment: Assignment, actual: ClusterState) -> bool:
    """Whether a replica has lost its node, and its worker with it."""
    workers = actual.workers.get(assignment.job, ())
    alive = any(worker.revision == assignment.revision for worker in workers)
    return assignment.node in actual.absent_since and not alive
