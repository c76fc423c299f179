"""Progress of workers: by their own words, and as their nodes report it."""

from __future__ import annotations

from dataclasses import replace

from penstock.cluster.node_documents import NodeReport
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerFigures, WorkerInfo
from penstock.cluster.worker_progress import ReportedProgress, same_but_progress

WORKER = WorkerInfo("count", 3, 1, "n1", 7, "running", 0.0, progress=Progress(batches=5, at=50.0))


def _report(progress: Progress | None, joined: ReplicaReport | None = None, job: str = "count") -> NodeReport:
    figures = WorkerFigures(job, "driver", 3, 1, 7, "LIVE|running", 0.5, 1, 0.0, 0, progress, joined)
    return NodeReport(60.0, 0.5, 1, 2, 0.0, 0.0, (figures,))


def _shown(worker: WorkerInfo, *reports: NodeReport) -> WorkerInfo:
    reported = ReportedProgress()
    for report in reports:
        reported.update({"n1": report}, {worker.replica: (worker,)})
    return reported.added_to(worker)


def test_the_newer_word_counts() -> None:
    assert _shown(WORKER, _report(Progress(batches=9, at=59.0))).progress.batches == 9
    assert _shown(WORKER, _report(Progress(batches=4, at=49.0))) == WORKER
    assert _shown(WORKER, _report(None)) == WORKER, "its supervisor is of an earlier version"
    assert _shown(WORKER) == WORKER


def test_the_report_of_another_attempt_does_not_count() -> None:
    again = replace(WORKER, attempt=2, progress=Progress())
    assert _shown(again, _report(Progress(batches=9, at=59.0))) == again


def test_what_was_reported_stays_when_the_report_is_gone() -> None:
    reported = ReportedProgress()
    reported.update({"n1": _report(Progress(batches=9, at=59.0))}, {WORKER.replica: (WORKER,)})
    reported.update({}, {WORKER.replica: (WORKER,)})
    assert reported.added_to(WORKER).progress.batches == 9, (
        "a counter does not fall while a supervisor is away"
    )


def test_what_was_reported_of_workers_that_are_gone_is_cleared_away() -> None:
    reported = ReportedProgress()
    for number in range(500):
        reports = {"n1": _report(Progress(batches=9, at=59.0), job=f"job{number}")}
        reported.update(reports, {WORKER.replica: (WORKER,)})
    assert len(reported._figures) <= 110


def test_how_a_replica_stands_is_its_own_word() -> None:
    catching_up = replace(WORKER, joined=ReplicaReport(batch=10, head=100, since=0))
    further = ReplicaReport(batch=40, head=110, since=0)
    newer = Progress(batches=9, at=59.0)
    assert _shown(catching_up, _report(newer, further)).joined == further
    was_in_step = ReplicaReport(batch=99, head=100)
    assert _shown(catching_up, _report(newer, was_in_step)).joined == catching_up.joined


def test_a_replica_that_falls_behind_or_comes_in_step_is_not_the_same() -> None:
    behind = replace(WORKER, joined=ReplicaReport(batch=10, head=100))
    assert same_but_progress(behind, replace(WORKER, joined=ReplicaReport(batch=20, head=100)))
    assert not same_but_progress(behind, replace(WORKER, joined=ReplicaReport(batch=99, head=100)))
    assert not same_but_progress(None, behind)
