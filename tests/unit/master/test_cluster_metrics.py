"""Figures of jobs with replicas: a job is counted once, whatever it runs as."""

from __future__ import annotations

from replicated_cluster import Cluster, joined

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.job_documents import Alarm
from penstock.cluster.node_documents import NodeReport
from penstock.coord import store_paths
from penstock.master.cluster_metrics import METRICS


def _samples(cluster: Cluster) -> dict[str, float]:
    lines = cluster.service.metrics().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def test_replicas_are_figures_of_one_job() -> None:
    cluster = Cluster()
    cluster.job(k=2, agreed=True)
    cluster.member(0, joined=joined(4, 40), records=7)
    cluster.member(1, joined=joined(39, 40, differs=True), records=77)
    found = _samples(cluster)
    assert found['penstock_jobs{phase="RUNNING"}'] == 1
    assert found['penstock_job_records_in_total{job="job"}'] == 77
    assert not [name for name in found if "~" in name]
    assert found['penstock_job_replicas_wanted{job="job"}'] == 3
    assert found['penstock_job_replicas_running{job="job"}'] == 2
    assert found['penstock_job_replicas_in_step{job="job"}'] == 1
    assert found['penstock_job_replica_batch{job="job",replica="0"}'] == 4
    assert found['penstock_job_replica_behind_batches{job="job",replica="0"}'] == 36
    assert found['penstock_job_replica_difference_time_seconds{job="job",replica="1"}'] == 2
    assert 'penstock_job_replica_batch{job="job",replica="2"}' not in found


def test_a_warm_standby_that_is_ready_is_as_wanted() -> None:
    cluster = Cluster()
    cluster.job(warm_standby=True, agreed=True)
    cluster.member(0, joined=joined(4, 4))
    cluster.member(1, phase="starting")
    assert _samples(cluster)['penstock_job_replicas_in_step{job="job"}'] == 1
    cluster.member(1, phase="ready")
    found = _samples(cluster)
    assert found['penstock_job_replicas_wanted{job="job"}'] == 2
    assert found['penstock_job_replicas_in_step{job="job"}'] == 2


def test_a_job_that_shall_end_wants_no_replicas_and_one_without_has_no_figures() -> None:
    cluster = Cluster()
    cluster.job(phase="ENDED", k=1, agreed=True)
    cluster.job("plain")
    found = _samples(cluster)
    assert found['penstock_job_replicas_wanted{job="job"}'] == 0
    assert not [name for name in found if "replica" in name and "plain" in name]


def test_each_metric_has_a_name_of_its_own_and_sorted_labels() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert [metric.name for metric in METRICS if list(metric.labels) != sorted(metric.labels)] == []
    assert [
        metric.name for metric in METRICS if (metric.kind == "counter") != metric.name.endswith("_total")
    ] == []


def test_what_is_exposed_of_masters_nodes_and_backups() -> None:
    cluster = Cluster(nodes=2)
    cluster.put(f"{store_paths.REPORTS}/n1", NodeReport(1.0, 0.25, 1 << 30, 2 << 30, 1234567.0, 0.5))
    for name, kind in (("a", 'odd"kind\\'), ("b", "hung"), ("c", "hung")):
        cluster.put(f"{store_paths.ALARMS}/{name}", Alarm(name, kind, "job", "it hung", 1.0))
    cluster.put(
        f"{store_paths.KEPT}/kept", BackupStatus("kept", "n0", 1, 1, batch=3, bytes=500, at=12.5, rate=0.125)
    )
    lines = [line for line in cluster.service.metrics().splitlines() if not line.startswith("# HELP")]
    assert [line for line in lines if line[0] != "#"] == [
        "penstock_master_leader 1",
        "penstock_store_connected 1",
        "penstock_epoch 1",
        'penstock_alarms{kind="hung"} 2',
        'penstock_alarms{kind="odd\\"kind\\\\"} 1',
        'penstock_node_up{node="n0"} 1',
        'penstock_node_up{node="n1"} 1',
        'penstock_node_cpu_ratio{node="n1"} 0.25',
        'penstock_node_memory_used_bytes{node="n1"} 1073741824',
        'penstock_node_network_receive_bytes_per_second{node="n1"} 1234567',
        'penstock_node_network_send_bytes_per_second{node="n1"} 0.5',
        'penstock_job_snapshot_bytes{job="kept"} 500',
        'penstock_job_snapshot_batch{job="kept"} 3',
        'penstock_job_snapshot_time_seconds{job="kept"} 12.5',
        'penstock_job_snapshot_send_bytes_per_second{job="kept"} 0.125',
    ]
    types = [f"# TYPE {metric.name} {metric.kind}" for metric in METRICS]
    assert [line for line in lines if line[0] == "#"] == types
