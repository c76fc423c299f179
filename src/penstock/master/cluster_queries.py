"""Answers queries about the cluster, its nodes and its jobs, from a master's mirror of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from penstock import __version__
from penstock.cluster.client_requests import NotFoundError, RefusedError
from penstock.cluster.job_documents import ENDED, OVER, PENDING, Alarm, JobSpec, JobStatus
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.unreadable_documents import ADVICE
from penstock.coord import store_paths
from penstock.master.cluster_metrics import render
from penstock.master.master import Master
from penstock.replicas.decisions.replica_set import is_replicated
from penstock.replicas.replica_id import ReplicaId
from penstock.replicas.service.replica_status import (
    job_failure_count,
    leading_worker,
    of_first_replica,
    replicas_of,
    result_of,
    workers_of,
)
from penstock.schedule.placement_explanation import explain_placement
from penstock.setting_values import name_fault


class LogReader(Protocol):
    """Reads the logs of the processes on all nodes."""

    def read(self, job: str, nodes: Mapping[str, NodeInfo], cursor: str, limit: int) -> dict[str, Any]:
        """Return lines in order of time, and a cursor. Raises InvalidRequestError for an invalid cursor."""
        ...


class ClusterQueries:
    """Answers queries. :class:`ClusterService` adds the commands."""

    def __init__(self, master: Master, logs: LogReader) -> None:
        self._master = master
        self._documents = master.documents
        self._logs = logs

    def is_leader(self) -> bool:
        return self._master.epoch is not None

    def leader_url(self) -> str:
        if self._master.epoch is not None:
            return self._master.info.url
        epoch = self._documents.epoch()
        masters = self._documents.masters()
        return epoch.url if epoch is not None and epoch.leader in masters else ""

    def ready(self) -> tuple[bool, str]:
        if not self._master.connected:
            return False, "the coordination store cannot be reached"
        if not self.leader_url():
            return False, "no master leads at the moment"
        return True, "leads" if self.is_leader() else f"follows {self.leader_url()}"

    def cluster(self) -> dict[str, Any]:
        epoch = self._documents.epoch()
        return {
            "epoch": epoch.number if epoch else 0,
            "leader": epoch.leader if epoch else "",
            "since": epoch.since if epoch else 0.0,
            "masters": [asdict(master) for _, master in sorted(self._documents.masters().items())],
            "nodes": len(self._documents.all(NodeInfo, store_paths.NODES)),
            "jobs": len(self._documents.jobs()),
            "version": __version__,
        }

    def nodes(self) -> list[dict[str, Any]]:
        found = self._documents.all(NodeInfo, store_paths.NODES)
        return [self._node(found[name]) for name in sorted(found)]

    def node(self, name: str) -> dict[str, Any]:
        found = self._documents.one(NodeInfo, f"{store_paths.NODES}/{checked_name(name)}")
        if found is None:
            raise NotFoundError(f"there is no node {name!r}")
        return self._node(found)

    def _node(self, info: NodeInfo) -> dict[str, Any]:
        report = self._documents.one(NodeReport, f"{store_paths.REPORTS}/{info.name}")
        jobs = sorted({replica.job for replica in self._replicas_on(info.name)})
        return {**asdict(info), "report": asdict(report) if report else None, "jobs": jobs}

    def _replicas_on(self, node: str) -> list[ReplicaId]:
        """Return the replicas with a driver or an executor on a node."""
        return [
            replica
            for replica, assignment in self._documents.assignments().items()
            if node in (assignment.node, *(slot.node for slot in assignment.executors))
        ]

    def jobs(self) -> list[dict[str, Any]]:
        found = {name: self._summary(spec) for name, spec in self._documents.jobs().items()}
        for name, reason in self._documents.unreadable(store_paths.JOBS).items():
            unknown = self._summary(JobSpec(name, "", "", generation=0))
            found[name] = {**unknown, "reason": f"its specification cannot be read: {reason}"}
        return [found[name] for name in sorted(found)]

    def _summary(self, spec: JobSpec) -> dict[str, Any]:
        status = self._status(spec.name)
        assignment = of_first_replica(self._documents.assignments(), spec.name)
        worker = leading_worker(self._documents, spec.name)
        result = result_of(self._documents, spec, status)
        progress = result.progress if result and status.phase == ENDED else None
        if worker is not None:
            progress = self._documents.progress_of(worker)
        over = status.phase in OVER  # A worker that has not left yet does nothing for it.
        return {
            "name": spec.name,
            "phase": status.phase,
            "reason": status.reason,
            "since": status.since,
            "generation": spec.generation,
            "node": "" if over else worker.node if worker else assignment.node if assignment else "",
            "executors": len(assignment.executors) if assignment else 0,
            "progress": {**vars(progress)} if progress else None,
            "failures": job_failure_count(self._documents, spec),
            "k": spec.settings.replicas.k,
            "safety": status.safety,
        }

    def job(self, name: str) -> dict[str, Any]:
        spec = self._spec(name)
        assignment = self._documents.assignments().get(spec.first_replica)
        result = result_of(self._documents, spec, self._status(name))
        failures = self._documents.failures().get(spec.first_replica)
        return {
            **self._summary(spec),
            "spec": asdict(spec),
            "status": asdict(self._status(name)),
            "assignment": asdict(assignment) if assignment else None,
            "workers": [asdict(worker) for worker in workers_of(self._documents, name)],
            "result": asdict(result) if result else None,
            "failures": asdict(failures) if failures else None,
            "replicas": replicas_of(self._documents, spec),
        }

    def alarms(self) -> list[dict[str, Any]]:
        found = self._documents.all(Alarm, store_paths.ALARMS).values()
        return [asdict(alarm) for alarm in sorted(found, key=lambda alarm: (-alarm.since, alarm.id))]

    def placement(self, name: str) -> dict[str, Any]:
        spec = self._spec(name)
        default = self._master.strategies.default
        return explain_placement(self._documents.jobs(), self._documents.actual(), spec.name, default=default)

    def logs(self, name: str, cursor: str, limit: int) -> dict[str, Any]:
        spec = self._spec(name)
        page = self._logs.read(name, self._documents.all(NodeInfo, store_paths.NODES), cursor, limit)
        if is_replicated(spec):
            page = {**page, "lines": [_of_replica(line) for line in page["lines"]]}
        return page

    def metrics(self) -> str:
        return render(self._documents, leads=self.is_leader(), connected=self._master.connected)

    def _spec(self, name: str) -> JobSpec:
        spec = self._documents.jobs().get(checked_name(name))
        if spec is None:
            if name in self._documents.unreadable(store_paths.JOBS):
                self._check_readable(name)
            raise NotFoundError(f"there is no job {name!r}")
        return spec

    def _status(self, name: str) -> JobStatus:
        known = self._documents.one(JobStatus, f"{store_paths.STATUS}/{name}")
        return known or JobStatus(PENDING, "it was submitted", 0.0)

    def _check_readable(self, name: str) -> None:
        """Refuse to change a job with an unreadable document."""
        self._documents.actual()
        reason = self._documents.unreadable_jobs().get(name)
        if reason is not None:
            raise RefusedError(f"no change of job {name!r} is possible: {reason}; {ADVICE}")


def _of_replica(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the log with the job's name, and the number of the replica that it is about.

    >>> _of_replica({"event": "started", "job": "words~1"})
    {'event': 'started', 'job': 'words', 'replica': 1}
    """
    replica = ReplicaId.parse(line["job"])
    return {**line, "job": replica.job, "replica": replica.index}


def checked_name(name: str) -> str:
    """Return a valid name. Raises NotFoundError for any other, for instance a path."""
    fault = name_fault(name)
    if fault:
        raise NotFoundError(f"not a valid name: {fault}")
    return name
