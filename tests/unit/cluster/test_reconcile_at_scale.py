"""The work of decisions grows with the number of jobs, and not with its square."""

from __future__ import annotations

from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.cluster.cluster_state import Rules
from penstock.cluster.decision_context import DecisionContext
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.job_reconciler import SingleJobReconciler
from penstock.cluster.job_retention import retention_actions
from penstock.cluster.leader_actions import SetStatus
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import Failures, ReplicaReport, Result, WorkerInfo
from penstock.cluster.worker_supervision import ObservedProcess, supervise
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from support.counting_work import work_of
from support.settings import make_assignment, make_spec, make_state, replace

FEW, MANY = 20, 80
MOST = 1.2 * MANY / FEW
"""Of the work for many, against that for few: in proportion, and a little for what grows otherwise."""


def _quiet_group_work(jobs: int) -> int:
    nodes = {
        f"n{number}": NodeInfo(f"n{number}", "", 8, 8 << 30, rack=f"r{number}") for number in range(jobs)
    }
    specs: dict[str, JobSpec] = {}
    assignments: dict[str, Assignment] = {}
    workers: dict[str, tuple[WorkerInfo, ...]] = {}
    for number in range(jobs):
        job = f"job{number}"
        specs[job] = make_spec(job, "b", "job.py", k=1, agreed=True)
        for replica in range(2):
            name, node = str(ReplicaId(job, replica)), f"n{(number + replica) % jobs}"
            assignments[name] = make_assignment(
                name,
                1,
                1,
                1,
                "b",
                "job.py",
                node,
                1,
                2 << 30,
                forget=0,
                membership=ReplicaAssignment(replica),
            )
            workers[name] = (WorkerInfo(name, 1, 1, node, 1, "running", 0.0, joined=ReplicaReport(5, 5)),)
    actual = make_state(nodes=nodes, assignments=assignments, workers=workers)
    placer = JobPlacer()
    actions = reconcile(specs, actual, 1.0, epoch=1, placer=placer)
    actual = replace(actual, statuses={one.job: one.status for one in actions if isinstance(one, SetStatus)})
    found: list[object] = []
    work = work_of(lambda: found.extend(reconcile(specs, actual, 1.0, epoch=1, placer=placer)))
    assert found == [], "there is nothing to do"
    return work


def test_deciding_that_nothing_is_to_be_done_about_replicas() -> None:
    assert _quiet_group_work(MANY) < MOST * _quiet_group_work(FEW)


def _past_job_work(jobs: int) -> int:
    instances = [
        ObservedProcess(f"job{number}", "driver", 1, attempt, 1, alive=False, started=0.0, died=1.0)
        for number in range(jobs)
        for attempt in (1, 2, 3)
    ]
    failures = {
        ReplicaId(f"job{number}"): Failures(f"job{number}", 1, 3, "it died", "n1", 1.0)
        for number in range(jobs)
    }
    return work_of(lambda: supervise("n1", {}, {}, failures, instances, 100.0))


def test_supervising_a_node_with_many_past_jobs() -> None:
    assert _past_job_work(MANY) < MOST * _past_job_work(FEW)


def _ended_job_work(jobs: int) -> int:
    statuses = {f"ended{number}": JobStatus("ENDED", "", 0.0) for number in range(jobs)}
    statuses |= {f"failed{number}": JobStatus("FAILED", "", 0.0) for number in range(jobs)}
    specs = {name: make_spec(name, "b", "job.py") for name in statuses}
    left = {
        name: Failures(name, 1, 8, "it died", "n1", 1.0)
        for name, status in statuses.items()
        if status.phase == "FAILED"
    }
    results = {name: Result(name, 1, "refused", "", 1.0) for name in left}
    for number in range(jobs):
        specs[f"job{number}"] = make_spec(f"job{number}", "b", "job.py")
    running = {
        f"job{number}": make_assignment(f"job{number}", 1, 1, 1, "b", "job.py", "n1", 1, 2 << 30)
        for number in range(jobs)
    }
    workers = {name: (WorkerInfo(name, 1, 1, "n1", 1, "running", 0.0),) for name in running}
    actual = make_state(
        assignments=running, workers=workers, statuses=statuses, failures=left, results=results
    )
    context = DecisionContext(actual, 5000.0, 1, Rules())

    def decide() -> None:
        assert retention_actions(specs, actual, 1.0) == []
        for name in statuses:
            SingleJobReconciler(specs[name], context).decide({})

    return work_of(decide)


def test_deciding_about_jobs_that_are_over() -> None:
    assert _ended_job_work(MANY) < MOST * _ended_job_work(FEW)
