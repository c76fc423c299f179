"""Documents that this version cannot read: nothing is decided about what they describe, and people are told.

A process of a later version may have written them. Whoever took them for absent would end a job that runs,
assign a revision twice, or move the work of a node that is there.
"""

from __future__ import annotations

from penstock.cluster.actions import Action, Clear, Raise
from penstock.cluster.alarms import UNREADABLE, alarm_id
from penstock.cluster.documents import Alarm
from penstock.cluster.view import Actual

ADVICE = "a later version of Penstock may have written it: upgrade this process, or mend the document"


def unreadable_alarms(actual: Actual, now: float) -> list[Action]:
    """Raise an alarm for each job, node and note that is left alone, and take back those that are over."""
    told: dict[str, str] = {}
    for node in sorted(actual.reports):
        for job, reason in sorted(actual.reports[node].unreadable.items()):
            told[job] = f"the supervisor of {node} leaves the job alone: {reason}"
    for node, reason in sorted(actual.unreadable_nodes.items()):
        told[node] = f"nothing is placed on the node: {reason}"
    for job, reason in sorted(actual.unreadable.items()):
        told[job] = f"the job is left alone as it is: {reason}"
    for path, reason in sorted(actual.unreadable_notes.items()):
        told[path] = f"no job is forgotten, and no new one is taken: {reason}"
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
            actions.append(Clear(id, "it can be read again"))
    return actions


def leave_alone(actions: list[Action], actual: Actual) -> list[Action]:
    """Return the actions that overwrite and remove nothing that cannot be read."""
    kept: list[Action] = []
    for action in actions:
        id = action.alarm.id if isinstance(action, Raise) else action.id if isinstance(action, Clear) else ""
        if id not in actual.unreadable_alarms:
            kept.append(action)
    return kept
