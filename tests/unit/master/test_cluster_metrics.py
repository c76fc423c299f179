"""Figures of jobs with replicas: a job is counted once, whatever it runs as."""

from __future__ import annotations

from replicated_cluster import Cluster, joined


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
