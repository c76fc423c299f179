"""Metrics of a cluster in the text format of Prometheus.

Each metric is declared once, in METRICS: ``GET /metrics`` and ``docs/reference/metrics.md`` derive from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.worker_documents import Progress
from penstock.coord import store_paths
from penstock.coord.mirrored_documents import Documents
from penstock.replicas.decisions.replica_set import has_warm_standby, is_replicated, replica_count
from penstock.replicas.service.replica_status import leading_worker, replicas_of

MetricSample = tuple[tuple[str, ...], float]
"""The values of the labels, and the figure."""


def render(documents: Documents, *, leads: bool, connected: bool) -> str:
    """Return all metrics."""
    view = ClusterFigures(documents, leads, connected)
    return "".join(_family(metric, metric.samples(view)) for metric in METRICS)


def _family(metric: Metric, samples: Iterable[MetricSample]) -> str:
    name = metric.name
    lines = [f"# HELP {name} {metric.text}", f"# TYPE {name} {metric.kind}"]
    for values, figure in samples:
        labels = zip(metric.labels, values, strict=True)
        inner = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
        lines.append(f"{name}{{{inner}}} {_number(figure)}" if inner else f"{name} {_number(figure)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Write a figure with all its digits.

    >>> _number(1234567.0), _number(0.25)
    ('1234567', '0.25')
    """
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(text: str) -> str:
    """Write a label's value.

    >>> _escaped('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class ClusterFigures:
    """The documents that metrics are computed from, each kind read once."""

    documents: Documents
    leads: bool
    connected: bool

    @cached_property
    def reports(self) -> Mapping[str, NodeReport]:
        """The last report of each node."""
        return dict(sorted(self.documents.all(NodeReport, store_paths.REPORTS).items()))

    @cached_property
    def progress(self) -> Mapping[str, Progress]:
        """The progress of the worker that stands for each job."""
        jobs = sorted({replica.job for replica in self.documents.workers()})
        leading = {job: leading_worker(self.documents, job) for job in jobs}
        return {job: self.documents.progress_of(worker) for job, worker in leading.items() if worker}

    @cached_property
    def replicated(self) -> Mapping[str, JobSpec]:
        """The jobs with replicas."""
        return {job: spec for job, spec in sorted(self.documents.jobs().items()) if is_replicated(spec)}

    @cached_property
    def replicas(self) -> Mapping[str, list[dict[str, Any]]]:
        """The replicas of each of these jobs."""
        return {job: replicas_of(self.documents, spec) for job, spec in self.replicated.items()}

    @cached_property
    def backups(self) -> Mapping[str, BackupStatus]:
        """The backup of each job that keeps its data with its node."""
        return dict(sorted(self.documents.all(BackupStatus, store_paths.KEPT).items()))


_Samples = Callable[[ClusterFigures], Iterable[MetricSample]]


@dataclass(frozen=True)
class Metric:
    """The declaration of a metric."""

    name: str
    unit: str
    text: str
    samples: _Samples
    group: Literal["masters", "nodes", "jobs", "replicas", "backups"]
    """The part of the reference that has it."""
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]


def _one(figure: Callable[[ClusterFigures], float]) -> _Samples:
    return lambda view: [((), float(figure(view)))]


def _counts(values: Iterable[str]) -> list[MetricSample]:
    return [((value,), float(count)) for value, count in sorted(Counter(values).items())]


def _alarms(view: ClusterFigures) -> list[MetricSample]:
    return _counts(alarm.kind for alarm in view.documents.all(Alarm, store_paths.ALARMS).values())


def _jobs(view: ClusterFigures) -> list[MetricSample]:
    return _counts(status.phase for status in view.documents.all(JobStatus, store_paths.STATUS).values())


def _epoch(view: ClusterFigures) -> float:
    epoch = view.documents.epoch()
    return epoch.number if epoch else 0


def _node_up(view: ClusterFigures) -> list[MetricSample]:
    return [((node,), 1.0) for node in sorted(view.documents.all(NodeInfo, store_paths.NODES))]


def _wanted(view: ClusterFigures) -> list[MetricSample]:
    return [
        ((job,), float(replica_count(spec) if spec.wanted == "running" else 0))
        for job, spec in view.replicated.items()
    ]


def _replicas_that(holds: Callable[[JobSpec, Mapping[str, Any]], bool]) -> _Samples:
    """Count the replicas of each job for which something holds."""
    return lambda view: [
        ((job,), float(sum(holds(view.replicated[job], replica) for replica in replicas)))
        for job, replicas in view.replicas.items()
    ]


def _is_running(_: JobSpec, replica: Mapping[str, Any]) -> bool:
    return bool(replica["phase"] == "running")


def _is_as_wanted(spec: JobSpec, replica: Mapping[str, Any]) -> bool:
    """Whether a replica is in step, or waits as a warm standby does."""
    return bool(replica["in_step"]) or (has_warm_standby(spec) and replica["phase"] == "ready")


def _replica(figure: Callable[[Mapping[str, Any]], float | None]) -> _Samples:
    return lambda view: [
        ((job, str(replica["number"])), float(value))
        for job, replicas in view.replicas.items()
        for replica in replicas
        if (value := figure(replica)) is not None
    ]


def _differed_at(replica: Mapping[str, Any]) -> float | None:
    return replica["differed"]["at"] if replica["differed"] is not None else None


def _field_of(
    documents: Callable[[ClusterFigures], Mapping[str, Any]], **declared: Any
) -> Callable[[str, str, str, str], Metric]:
    """Return what declares a metric that is a field of each document; None in a document gives no line."""

    def metric(name: str, unit: str, text: str, field: str) -> Metric:
        def samples(view: ClusterFigures) -> list[MetricSample]:
            values = ((of, getattr(document, field)) for of, document in documents(view).items())
            return [((of,), float(value)) for of, value in values if value is not None]

        return Metric(name, unit, text, samples, **declared)

    return metric


_SINCE_1970 = "seconds since 1970"

_master_gauge = partial(Metric, group="masters", kind="gauge", labels=())
_node_gauge = _field_of(lambda view: view.reports, group="nodes", kind="gauge", labels=("node",))
_job_counter = _field_of(lambda view: view.progress, group="jobs", kind="counter", labels=("job",))
_job_gauge = _field_of(lambda view: view.progress, group="jobs", kind="gauge", labels=("job",))
_replica_gauge = partial(Metric, group="replicas", kind="gauge", labels=("job", "replica"))
_replicas_gauge = partial(Metric, group="replicas", kind="gauge", labels=("job",))
_backup_gauge = _field_of(lambda view: view.backups, group="backups", kind="gauge", labels=("job",))

METRICS: tuple[Metric, ...] = (
    _master_gauge(
        "penstock_master_leader", "0 or 1", "Whether this master leads.", _one(lambda view: view.leads)
    ),
    _master_gauge(
        "penstock_store_connected",
        "0 or 1",
        "Whether this master reaches ZooKeeper.",
        _one(lambda view: view.connected),
    ),
    _master_gauge(
        "penstock_epoch",
        "number",
        "The epoch of the leader; it rises by one with each election.",
        _one(_epoch),
    ),
    _master_gauge(
        "penstock_alarms",
        "alarms",
        "Number of alarms by kind; a kind without alarms has no line.",
        _alarms,
        labels=("kind",),
    ),
    _master_gauge(
        "penstock_jobs",
        "jobs",
        "Number of jobs by phase; a phase without jobs has no line.",
        _jobs,
        labels=("phase",),
    ),
    Metric("penstock_node_up", "1", "The node is registered.", _node_up, "nodes", "gauge", ("node",)),
    _node_gauge("penstock_node_cpu_ratio", "0 to 1", "Share of all cores of the machine in use.", "cpu"),
    _node_gauge("penstock_node_memory_used_bytes", "bytes", "Memory of the machine in use.", "memory_used"),
    _node_gauge(
        "penstock_node_network_receive_bytes_per_second",
        "bytes a second",
        "Received on all interfaces but loopback.",
        "network_in",
    ),
    _node_gauge(
        "penstock_node_network_send_bytes_per_second",
        "bytes a second",
        "Sent on all interfaces but loopback.",
        "network_out",
    ),
    _job_counter("penstock_job_batches_total", "batches", "Committed batches.", "batches"),
    _job_counter("penstock_job_records_in_total", "records", "Records read from sources.", "records_in"),
    _job_counter("penstock_job_records_out_total", "records", "Records written to sinks.", "records_out"),
    _job_counter(
        "penstock_job_records_discarded_total",
        "records",
        "Records that reached the limit of a loop.",
        "discarded",
    ),
    _job_counter(
        "penstock_job_records_late_total", "records", "Records that were late for all their windows.", "late"
    ),
    _job_counter(
        "penstock_job_records_failed_total",
        "records",
        "Records that went into the side stream errors.",
        "errors",
    ),
    _job_gauge(
        "penstock_job_lag_records",
        "records",
        "Unread records in the sources; no line when the sources cannot tell.",
        "lag",
    ),
    _job_gauge("penstock_job_batch_seconds", "seconds", "Duration of the last batch.", "batch_seconds"),
    _job_gauge(
        "penstock_job_last_progress_seconds",
        _SINCE_1970,
        "When the figures last changed; 0 before the first change. A job without input makes no progress.",
        "at",
    ),
    _replicas_gauge(
        "penstock_job_replicas_wanted",
        "replicas",
        "Wanted replicas: k + 1, two with a warm standby, none when the job is to end.",
        _wanted,
    ),
    _replicas_gauge(
        "penstock_job_replicas_running", "replicas", "Running replicas.", _replicas_that(_is_running)
    ),
    _replicas_gauge(
        "penstock_job_replicas_in_step",
        "replicas",
        "Replicas that could continue the job alone without a gap, or are ready as a warm standby.",
        _replicas_that(_is_as_wanted),
    ),
    _replica_gauge(
        "penstock_job_replica_batch",
        "",
        "The last batch of the replica; no line before its first report.",
        _replica(lambda replica: replica["batch"]),
    ),
    _replica_gauge(
        "penstock_job_replica_behind_batches",
        "batches",
        "How many batches the replica is behind the newest agreed one.",
        _replica(lambda replica: replica["behind"]),
    ),
    _replica_gauge(
        "penstock_job_replica_difference_time_seconds",
        _SINCE_1970,
        "When its result last differed from the one that counts; no line if it never has.",
        _replica(_differed_at),
    ),
    _backup_gauge("penstock_job_snapshot_bytes", "bytes", "Size of the last complete snapshot.", "bytes"),
    _backup_gauge(
        "penstock_job_snapshot_batch",
        "",
        "The last batch in that snapshot; -1 before the first snapshot.",
        "batch",
    ),
    _backup_gauge(
        "penstock_job_snapshot_time_seconds",
        _SINCE_1970,
        "When that snapshot was taken; 0 before the first snapshot.",
        "at",
    ),
    _backup_gauge(
        "penstock_job_snapshot_send_bytes_per_second",
        "bytes a second",
        "Recent rate at which snapshots were sent.",
        "rate",
    ),
)
"""All metrics, in the order in which they are exposed."""
