"""The location controller: for each job whose data is with its node, who keeps a copy and who runs it next.

Pure. What is decided now is compared with what was decided before, and only differences are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.actions import Locate, Unlocate
from penstock.cluster.documents import JobSpec, Kept, Location, NodeInfo
from penstock.cluster.view import Actual
from penstock.schedule.constraints import allowed_nodes
from penstock.schedule.location import Choice, Decision, Objective, Problem, Server, Task, changes, resolve
from penstock.schedule.location.model import UNKNOWN_BANDWIDTH
from penstock.schedule.reading import driver_task, node_of

_UNKNOWN_BYTES = 64e6
"""What a job's data is taken to be before it has been copied once,"""
_UNKNOWN_RATE = 1e6
"""and how fast it is taken to grow."""


@dataclass(frozen=True)
class LocatingRules:
    """How locations are decided."""

    failures: int = 1
    """How many nodes may fail at once."""
    period: float = 30.0
    """Seconds after which it is decided again though no node and no job has come or gone."""


def occasion(desired: Mapping[str, JobSpec], actual: Actual) -> tuple[object, ...]:
    """Return what locations depend on that changes suddenly: when it does, decide again at once."""
    jobs = sorted(
        (name, assignment.node, assignment.cores)
        for name, assignment in actual.assignments.items()
        if name in desired and desired[name].keep == "node"
    )
    if not jobs and not actual.locations:
        return ()  # Then nodes may come and go.
    nodes = sorted(
        (node.name, node.cores, node.bandwidth, node.rack, node.url) for node in actual.nodes.values()
    )
    return (tuple(jobs), tuple(nodes), tuple(sorted(actual.locations)))


def locate(
    desired: Mapping[str, JobSpec], actual: Actual, now: float, rules: LocatingRules | None = None
) -> list[Locate | Unlocate]:
    """Return what has to be told. A job whose node is gone is left as it is: its location is needed now."""
    rules = rules or LocatingRules()
    decided = decided_before(actual)
    decision = resolve(problem_of(desired, actual, rules), decided)
    differing = {choice.task for choice in changes(decided, decision)}
    told: list[Locate | Unlocate] = []
    for choice in decision.choices:
        url = actual.nodes[choice.store].url
        before = actual.locations.get(choice.task)
        if choice.task in differing or before is None or before.store_url != url:
            told.append(Locate(_location(choice, url, now), choice.reason))
    told += [
        Unlocate(lacking.task, f"nobody can keep a copy of it: {lacking.reason}")
        for lacking in decision.unprotected
        if lacking.task in actual.locations
    ]
    over = sorted(set(actual.locations) - set(actual.assignments))
    told += [Unlocate(job, "it runs no more") for job in over if not actual.workers.get(job)]
    return told


def problem_of(desired: Mapping[str, JobSpec], actual: Actual, rules: LocatingRules) -> Problem:
    """Return the servers, and the jobs with data on them."""
    in_use = dict.fromkeys(actual.nodes, 0.0)
    for assignment in actual.assignments.values():
        places = [(assignment.node, assignment.cores)]
        places += [(slot.node, slot.cores) for slot in assignment.executors]
        for node, cores in places:
            if node in in_use:
                in_use[node] += cores
    nodes = [node_of(actual.nodes[name], None) for name in sorted(actual.nodes)]
    tasks = [
        _task(
            name,
            assignment.node,
            float(assignment.cores),
            actual.kept.get(name),
            allowed_nodes(driver_task(desired[name], desired[name].nodes), nodes),
        )
        for name, assignment in sorted(actual.assignments.items())
        if name in desired and desired[name].keep == "node" and assignment.node in actual.nodes
    ]
    servers = [_server(actual.nodes[name], in_use[name]) for name in sorted(actual.nodes)]
    return Problem(tuple(servers), tuple(tasks), failures=rules.failures)


def _server(node: NodeInfo, cores_in_use: float) -> Server:
    bandwidth = node.bandwidth or UNKNOWN_BANDWIDTH
    return Server(node.name, float(node.cores), bandwidth, cpu_in_use=cores_in_use, rack=node.rack)


def _task(
    job: str, node: str, cores: float, kept: Kept | None, allowed: tuple[str, ...] | None = None
) -> Task:
    """Describe a job's data. It is copied as it grows, so what storing takes is the rate of that.

    >>> task = _task("count", "n1", 2.0, Kept("count", "n1", 1, 1, "n2", bytes=90_000_000, rate=3e6))
    >>> task.backup, task.store_rate
    (90000000.0, 3000000.0)
    """
    size = float(kept.bytes) if kept is not None and kept.bytes else _UNKNOWN_BYTES
    rate = kept.rate if kept is not None and kept.rate > 0 else _UNKNOWN_RATE
    return Task(job, node, cores, snapshot=size, input_rate=0.0, interval=size / rate, allowed=allowed)


def decided_before(actual: Actual) -> Decision:
    """Return what the leader, or the one before it, decided last."""
    choices = tuple(
        Choice(name, location.store, location.redeploy, location.rate, location.seconds, location.reason)
        for name, location in sorted(actual.locations.items())
    )
    seconds = sum(choice.seconds for choice in choices)
    return Decision("before", choices, (), Objective(seconds, 0.0))


def _location(choice: Choice, url: str, now: float) -> Location:
    return Location(
        choice.task, choice.store, url, choice.redeploy, choice.rate, choice.seconds, choice.reason, now
    )
