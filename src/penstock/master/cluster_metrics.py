"""Metrics of a cluster in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.coord import store_paths
from penstock.coord.mirrored_documents import Documents
from penstock.replicas.decisions.replica_set import has_warm_standby, is_replicated, replica_count
from penstock.replicas.service.replica_status import leading_worker, replicas_of

MetricSample = tuple[Mapping[str, str], float]


def render(documents: Documents, *, leads: bool, connected: bool) -> str:
    """Return all metrics."""
    epoch = documents.epoch()
    families: list[tuple[str, str, str, list[MetricSample]]] = [
        ("penstock_master_leader", "gauge", "Whether this master leads.", [({}, float(leads))]),
        ("penstock_store_connected", "gauge", "Whether the store can be reached.", [({}, float(connected))]),
        ("penstock_epoch", "gauge", "The epoch of the leader.", [({}, float(epoch.number if epoch else 0))]),
        ("penstock_alarms", "gauge", "Alarms by kind.", _alarms(documents)),
        ("penstock_jobs", "gauge", "Jobs by phase.", _jobs(documents)),
        *_nodes(documents),
        *_progress(documents),
        *_replicas(documents),
        *_copies(documents),
    ]
    return "".join(_family(*family) for family in families)


def _family(name: str, kind: str, text: str, samples: Iterable[MetricSample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(content)}"' for label, content in sorted(labels.items()))
        lines.append(f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Format a value with all its digits.

    >>> _number(1234567.0), _number(0.25)
    ('1234567', '0.25')
    """
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(text: str) -> str:
    """Escape a label's value.

    >>> _escaped('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _alarms(documents: Documents) -> list[MetricSample]:
    counts: dict[str, int] = {}
    for alarm in documents.all(Alarm, store_paths.ALARMS).values():
        counts[alarm.kind] = counts.get(alarm.kind, 0) + 1
    return [({"kind": kind}, float(count)) for kind, count in sorted(counts.items())]


def _jobs(documents: Documents) -> list[MetricSample]:
    counts: dict[str, int] = {}
    for status in documents.all(JobStatus, store_paths.STATUS).values():
        counts[status.phase] = counts.get(status.phase, 0) + 1
    return [({"phase": phase}, float(count)) for phase, count in sorted(counts.items())]


def _nodes(documents: Documents) -> list[tuple[str, str, str, list[MetricSample]]]:
    nodes = sorted(documents.all(NodeInfo, store_paths.NODES))
    reports = documents.all(NodeReport, store_paths.REPORTS)

    def each(field: str) -> list[MetricSample]:
        return [({"node": name}, float(getattr(reports[name], field))) for name in sorted(reports)]

    return [
        ("penstock_node_up", "gauge", "Nodes that are registered.", [({"node": n}, 1.0) for n in nodes]),
        ("penstock_node_cpu_ratio", "gauge", "Share of a node's cores in use.", each("cpu")),
        ("penstock_node_memory_used_bytes", "gauge", "Memory in use on a node.", each("memory_used")),
        (
            "penstock_node_network_receive_bytes_per_second",
            "gauge",
            "Received by a node.",
            each("network_in"),
        ),
        ("penstock_node_network_send_bytes_per_second", "gauge", "Sent by a node.", each("network_out")),
    ]


def _copies(documents: Documents) -> list[tuple[str, str, str, list[MetricSample]]]:
    """Return the metrics of jobs with node-kept data."""
    kept = documents.all(BackupStatus, store_paths.KEPT)

    def each(field: str) -> list[MetricSample]:
        return [({"job": job}, float(getattr(kept[job], field))) for job in sorted(kept)]

    return [
        ("penstock_job_snapshot_bytes", "gauge", "Size of the last complete snapshot.", each("bytes")),
        ("penstock_job_snapshot_batch", "gauge", "The last batch in it.", each("batch")),
        (
            "penstock_job_snapshot_time_seconds",
            "gauge",
            "When it was taken, seconds since 1970.",
            each("at"),
        ),
        (
            "penstock_job_snapshot_send_bytes_per_second",
            "gauge",
            "Recent rate of backups.",
            each("rate"),
        ),
    ]


def _replicas(documents: Documents) -> list[tuple[str, str, str, list[MetricSample]]]:
    """Return the metrics of jobs with replicas."""
    specs = {job: spec for job, spec in sorted(documents.jobs().items()) if is_replicated(spec)}
    found = {job: replicas_of(documents, spec) for job, spec in specs.items()}
    wanted: list[MetricSample] = [
        ({"job": job}, float(replica_count(spec) if spec.wanted == "running" else 0))
        for job, spec in specs.items()
    ]
    running: list[MetricSample] = [
        ({"job": job}, float(sum(replica["phase"] == "running" for replica in replicas)))
        for job, replicas in found.items()
    ]
    in_step: list[MetricSample] = [
        ({"job": job}, float(sum(_is_as_wanted(specs[job], replica) for replica in replicas)))
        for job, replicas in found.items()
    ]

    def each(field: str) -> list[MetricSample]:
        return [
            ({"job": job, "replica": str(replica["number"])}, float(replica[field]))
            for job, replicas in found.items()
            for replica in replicas
            if replica[field] is not None
        ]

    differed: list[MetricSample] = [
        ({"job": job, "replica": str(replica["number"])}, float(replica["differed"]["at"]))
        for job, replicas in found.items()
        for replica in replicas
        if replica["differed"] is not None
    ]
    return [
        ("penstock_job_replicas_wanted", "gauge", "Replicas that a job should have.", wanted),
        ("penstock_job_replicas_running", "gauge", "Replicas that run.", running),
        (
            "penstock_job_replicas_in_step",
            "gauge",
            "Replicas that are in step, or ready as the standby.",
            in_step,
        ),
        ("penstock_job_replica_batch", "gauge", "The last batch of a replica.", each("batch")),
        ("penstock_job_replica_behind_batches", "gauge", "Batches that it is behind by.", each("behind")),
        (
            "penstock_job_replica_difference_time_seconds",
            "gauge",
            "When its result last differed, seconds since 1970.",
            differed,
        ),
    ]


def _is_as_wanted(spec: JobSpec, replica: Mapping[str, Any]) -> bool:
    """Return whether a replica is in step, or is a ready standby."""
    return bool(replica["in_step"]) or (has_warm_standby(spec) and replica["phase"] == "ready")


def _progress(documents: Documents) -> list[tuple[str, str, str, list[MetricSample]]]:
    jobs = sorted({replica.job for replica in documents.workers()})
    leaders = {job: leading_worker(documents, job) for job in jobs}
    up = {job: documents.progress_of(worker) for job, worker in leaders.items() if worker is not None}

    def each(field: str) -> list[MetricSample]:
        found = [(job, getattr(progress, field)) for job, progress in up.items()]
        return [({"job": job}, float(value)) for job, value in found if value is not None]

    def family(name: str, kind: str, text: str, field: str) -> tuple[str, str, str, list[MetricSample]]:
        return f"penstock_job_{name}", kind, f"{text}, since its worker started.", each(field)

    return [
        family("batches_total", "counter", "Batches", "batches"),
        family("records_in_total", "counter", "Records read", "records_in"),
        family("records_out_total", "counter", "Records written", "records_out"),
        family("records_discarded_total", "counter", "Records past the limit of a loop", "discarded"),
        family("records_late_total", "counter", "Records too late for all their windows", "late"),
        family("records_failed_total", "counter", "Records that user code failed for", "errors"),
        ("penstock_job_lag_records", "gauge", "Records that wait in the sources.", each("lag")),
        ("penstock_job_batch_seconds", "gauge", "How long the last batch took.", each("batch_seconds")),
        (
            "penstock_job_last_progress_seconds",
            "gauge",
            "Its last report, seconds since 1970.",
            each("at"),
        ),
    ]
