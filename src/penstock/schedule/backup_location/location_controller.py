"""The location controller: decides where jobs with node-kept data have their backups and restart.

Pure. The decision is compared with the previous one, and only differences are written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.leader_actions import RemoveBackupLocation, SetBackupLocation
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.backup_location import (
    LocationChoice,
    LocationDecision,
    LocationProblem,
    Objective,
    ProtectedTask,
    Server,
    Uplink,
    changes,
    resolve,
)
from penstock.schedule.backup_location.backup_problem import RUNGS, UNKNOWN_BANDWIDTH
from penstock.schedule.cluster_snapshot import driver_task, node_of
from penstock.schedule.placement_constraints import allowed_nodes

_UNKNOWN_BYTES = 64e6
"""The assumed size of a job's data before its first backup,"""
_UNKNOWN_RATE = 1e6
"""and its assumed growth a second."""
MIN_LINK_SHARE = 0.1
"""The least share of a link that is available for backups, however busy it is."""
MAX_DISK_SHARE = 0.9
"""The share of a disk's free space that backups may take."""


@dataclass(frozen=True)
class LocationSettings:
    """The settings of the location controller."""

    failures: int = 1
    """How many nodes may fail at once."""
    period: float = 30.0
    """Seconds between decisions while nodes and jobs stay the same."""


def location_inputs(desired: Mapping[str, JobSpec], actual: ClusterState) -> tuple[object, ...]:
    """Return the inputs whose change triggers a new decision at once: nodes and assignments."""
    jobs = sorted(
        (name, assignment.node, assignment.settings.resources.cores)
        for name, assignment in _with_kept_data(desired, actual).items()
    )
    if not jobs and not actual.locations:
        return ()  # Without such jobs, changes of nodes do not matter.
    nodes = sorted(
        (node.name, node.cores, node.bandwidth, node.rack, node.url) for node in actual.nodes.values()
    )
    return (tuple(jobs), tuple(nodes), tuple(sorted(actual.locations)))


def locate(
    desired: Mapping[str, JobSpec], actual: ClusterState, now: float, rules: LocationSettings | None = None
) -> list[SetBackupLocation | RemoveBackupLocation]:
    """Return the location changes to write. Jobs whose node is lost keep theirs: recovery uses it."""
    rules = rules or LocationSettings()
    decided = previous_decision(actual)
    decision = resolve(cluster_problem(desired, actual, rules), decided)
    differing = {choice.task for choice in changes(decided, decision)}
    told: list[SetBackupLocation | RemoveBackupLocation] = []
    for choice in decision.choices:
        location = _location(choice, actual.nodes[choice.store].url, now, _assumed(choice, actual))
        before = actual.locations.get(choice.task)
        same = before is not None and (before.store_url, before.assumed) == (
            location.store_url,
            location.assumed,
        )
        if choice.task in differing or not same:
            told.append(SetBackupLocation(location, choice.reason))
    told += [
        RemoveBackupLocation(lacking.task, f"no node can store its backup: {lacking.reason}")
        for lacking in decision.unprotected
        if lacking.task in actual.locations
    ]
    told += [
        RemoveBackupLocation(job, "the job has ended")
        for job in sorted(actual.locations)
        if ReplicaId(job) not in actual.assignments and not actual.workers.get(ReplicaId(job))
    ]
    return told


def _with_kept_data(desired: Mapping[str, JobSpec], actual: ClusterState) -> dict[str, Assignment]:
    """Return the assignments of the jobs with node-kept data."""
    kept = [spec for spec in desired.values() if spec.settings.data_location == "node"]
    return {
        spec.name: actual.assignments[spec.first_replica]
        for spec in kept
        if spec.first_replica in actual.assignments
    }


def cluster_problem(
    desired: Mapping[str, JobSpec], actual: ClusterState, rules: LocationSettings
) -> LocationProblem:
    """Return the servers, and the jobs with data on them."""
    in_use = dict.fromkeys(actual.nodes, 0.0)
    for assignment in actual.assignments.values():
        places = [(assignment.node, assignment.settings.resources.cores)]
        places += [(slot.node, slot.cores) for slot in assignment.executors]
        for node, cores in places:
            if node in in_use:
                in_use[node] += cores
    nodes = [node_of(actual.nodes[name], None) for name in sorted(actual.nodes)]
    tasks = [
        _task(
            name,
            assignment.node,
            float(assignment.settings.resources.cores),
            actual.kept.get(name),
            allowed_nodes(driver_task(desired[name], desired[name].settings.placement.nodes), nodes),
        )
        for name, assignment in sorted(_with_kept_data(desired, actual).items())
        if assignment.node in actual.nodes
    ]
    copies = _copies(actual)
    servers = [
        _server(actual.nodes[name], in_use[name], actual.reports.get(name), copies[name])
        for name in sorted(actual.nodes)
    ]
    # By the bandwidth of links, not by what is left of it, which changes each time.
    fastest = max((node.bandwidth or UNKNOWN_BANDWIDTH for node in actual.nodes.values()), default=1.0)
    rates = tuple(fastest / 2**rung for rung in range(RUNGS))
    return LocationProblem(tuple(servers), tuple(tasks), _uplinks(actual.nodes), rules.failures, rates)


@dataclass
class _Copies:
    """The resources of a node that backups use already."""

    traffic: float = 0.0
    """Bytes a second, in or out."""
    stored: float = 0.0
    """Bytes that it stores for others."""


def _copies(actual: ClusterState) -> dict[str, _Copies]:
    found = {name: _Copies() for name in actual.nodes}
    for kept in actual.kept.values():
        for name in {kept.origin, kept.store} & {*found}:
            found[name].traffic += kept.rate
        if kept.store in found:
            found[kept.store].stored += kept.bytes
    return found


def _server(node: NodeInfo, cores_in_use: float, report: NodeReport | None, copies: _Copies) -> Server:
    """Describe a node by its registration and its report.

    Other traffic on its link is not available for backups; that of backups is, since each of them is counted
    when its location is decided. The same holds for its disk.
    """
    bandwidth, storage = node.bandwidth or UNKNOWN_BANDWIDTH, math.inf
    if report is not None:
        others = max(report.network_in, report.network_out) - copies.traffic
        bandwidth = max(bandwidth - max(others, 0.0), MIN_LINK_SHARE * bandwidth)
        if report.disk_free >= 0:
            storage = MAX_DISK_SHARE * report.disk_free + copies.stored
    return Server(node.name, float(node.cores), bandwidth, cores_in_use, storage, node.rack)


def _uplinks(nodes: Mapping[str, NodeInfo]) -> tuple[Uplink, ...]:
    """Return the known links between racks; if nodes of a rack disagree, the slowest counts."""
    told: dict[str, float] = {}
    for node in nodes.values():
        if node.uplink > 0:
            told[node.rack] = min(node.uplink, told.get(node.rack, math.inf))
    return tuple(Uplink(rack, bandwidth) for rack, bandwidth in sorted(told.items()))


def _assumed(choice: LocationChoice, actual: ClusterState) -> str:
    """Name the figures that a decision assumes because they are neither configured nor measured."""
    found = []
    kept = actual.kept.get(choice.task)
    if kept is None or not kept.bytes:
        found.append(f"{_UNKNOWN_BYTES / 1e6:.0f} MB of data (not backed up yet)")
    if kept is None or kept.rate <= 0:
        found.append(f"growth of {_UNKNOWN_RATE / 1e6:.0f} MB/s (not measured yet)")
    origin = actual.assignments[ReplicaId(choice.task)].node
    concerned = sorted({origin, choice.store, choice.redeploy})
    links = [name for name in concerned if name in actual.nodes and not actual.nodes[name].bandwidth]
    if links:
        found.append(f"{UNKNOWN_BANDWIDTH / 1e6:.0f} MB/s of the link of {', '.join(links)} (--bandwidth)")
    report = actual.reports.get(choice.store)
    if report is None or report.disk_free < 0:
        found.append(f"room for it on {choice.store}")
    racks = {actual.nodes[name].rack for name in concerned if name in actual.nodes}
    limited = {uplink.rack for uplink in _uplinks(actual.nodes)}
    if len(racks) > 1 and racks - limited:
        found.append(
            f"that what goes between racks fits through the uplink of {', '.join(sorted(racks - limited))}"
        )
    return "; ".join(found)


def _task(
    job: str, node: str, cores: float, kept: BackupStatus | None, allowed: tuple[str, ...] | None = None
) -> ProtectedTask:
    """Describe a job's data. It is copied as it grows, so storing it takes the rate of its growth.

    >>> task = _task("count", "n1", 2.0, BackupStatus("count", "n1", 1, 1, "n2", bytes=90_000_000, rate=3e6))
    >>> task.backup, task.store_rate
    (90000000.0, 3000000.0)
    """
    size = float(kept.bytes) if kept is not None and kept.bytes else _UNKNOWN_BYTES
    rate = kept.rate if kept is not None and kept.rate > 0 else _UNKNOWN_RATE
    return ProtectedTask(
        job, node, cores, snapshot=size, input_rate=0.0, interval=size / rate, allowed=allowed
    )


def previous_decision(actual: ClusterState) -> LocationDecision:
    """Return the previous decision, of this leader or an earlier one."""
    choices = tuple(
        LocationChoice(
            name, location.store, location.redeploy, location.rate, location.seconds, location.reason
        )
        for name, location in sorted(actual.locations.items())
    )
    seconds = sum(choice.seconds for choice in choices)
    return LocationDecision("before", choices, (), Objective(seconds, 0.0))


def _location(choice: LocationChoice, url: str, now: float, assumed: str) -> BackupLocation:
    return BackupLocation(
        choice.task,
        choice.store,
        url,
        choice.redeploy,
        choice.rate,
        choice.seconds,
        choice.reason,
        now,
        assumed,
    )
