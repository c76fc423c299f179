"""Documents that this version cannot read: they raise alarms, and nothing is decided about their subjects.

A later version may have written them. A leader that treated them as missing would end a job that runs, assign
a revision twice, or move the work of a node that is up.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.cluster.alarms import UNREADABLE, alarm_id
from penstock.cluster.cluster_state import ClusterState, ReservedResources
from penstock.cluster.job_documents import Alarm
from penstock.cluster.leader_actions import Action, Clear, Raise
from penstock.cluster.worker_supervision import DRIVER, slot_role

ADVICE = "a later version of Penstock may have written it: upgrade this process, or repair the document"


def unreadable_alarms(actual: ClusterState, now: float) -> list[Action]:
    """Raise an alarm about each subject of an unreadable document, and clear those that are over."""
    told: dict[str, str] = {}
    for node in sorted(actual.reports):
        for job, reason in sorted(actual.reports[node].unreadable.items()):
            told[job] = f"the supervisor of {node} does not act on the job: {reason}"
    for node, reason in sorted(actual.unreadable_nodes.items()):
        told[node] = f"nothing is placed on the node: {reason}"
    for job, reason in sorted(actual.unreadable.items()):
        told[job] = f"no decision is made about the job: {reason}"
    for path, reason in sorted(actual.unreadable_notes.items()):
        told[path] = (
            "jobs can be neither forgotten nor submitted, because the largest revision of forgotten jobs is "
            f"not known: {reason}"
        )
    wanted = {
        id: Alarm(id, UNREADABLE, subject, f"{reason}; {ADVICE}", now)
        for subject, reason in sorted(told.items())
        for id in [alarm_id(UNREADABLE, subject.strip("/").replace("/", "."))]
    }
    actions: list[Action] = []
    for id, alarm in wanted.items():
        known = actual.alarms.get(id)
        if known is None or known.reason != alarm.reason:
            actions.append(Raise(alarm))
    for id, alarm in sorted(actual.alarms.items()):
        if alarm.kind == UNREADABLE and id not in wanted:
            actions.append(Clear(id, "the document can be read again"))
    return actions


def reserved_resources(name: str, data: bytes) -> list[ReservedResources]:
    """Return the resources of an assignment of another version, by the fields that this version knows.

    >>> resources = b'"settings": {"resources": {"cores": 2, "memory": 8}}'
    >>> later = b'{"schema": 3, "node": "n1", ' + resources + b', "executors": [{"ordinal": 1}]}'
    >>> reserved_resources("count", later)
    [ReservedResources(name='count', role='driver', node='n1', cores=2, memory=8)]
    """
    try:
        content = json.loads(data)
    except ValueError:
        return []
    if not isinstance(content, dict):
        return []
    slots = content.get("executors")
    settings = content.get("settings")
    resources = settings.get("resources") if isinstance(settings, dict) else content
    if not isinstance(resources, dict):
        resources = {}
    driver = {"node": content.get("node"), **_part(resources)}
    places = [(DRIVER, driver)]
    places += [
        (slot_role(slot["ordinal"]), slot)
        for slot in (slots if isinstance(slots, list) else [])
        if isinstance(slot, dict) and type(slot.get("ordinal")) is int
    ]
    return [
        ReservedResources(name, role, place["node"], place["cores"], place["memory"])
        for role, place in places
        if _tells_room(place)
    ]


def _part(resources: dict[str, Any]) -> dict[str, Any]:
    return {name: resources.get(name) for name in ("cores", "memory")}


def _tells_room(place: dict[str, Any]) -> bool:
    numbers = (place.get("cores"), place.get("memory"))
    return isinstance(place.get("node"), str) and all(type(one) is int and one >= 0 for one in numbers)


def leave_alone(actions: list[Action], actual: ClusterState) -> list[Action]:
    """Return the actions without those that would overwrite or remove an unreadable alarm."""
    kept: list[Action] = []
    for action in actions:
        id = action.alarm.id if isinstance(action, Raise) else action.id if isinstance(action, Clear) else ""
        if id not in actual.unreadable_alarms:
            kept.append(action)
    return kept
