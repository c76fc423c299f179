"""A master of many jobs: what it reads, decides and answers costs no more than it must."""

from __future__ import annotations

import pytest
from replicated_cluster import Cluster
from without_code import AnyBundle, NoLogs

from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import Code, JobSpec
from penstock.cluster.node_documents import Epoch, MasterInfo, NodeInfo, NodeJobs, NodeReport
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerFigures, WorkerInfo
from penstock.coord import store_paths
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.replicas.replica_id import ReplicaId
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.counting_work import work_of
from support.settings import by_replica, make_assignment, make_spec, replace

MOST = 1.2 * 4


def _filled(jobs: int) -> Cluster:
    cluster = Cluster()
    for number in range(jobs):
        cluster.job(f"job{number}")
        cluster.member(0, job=f"job{number}", records=number)
        cluster.fail(0, 1, 1, job=f"job{number}")
        cluster.end(0, "stopped", 1, 1.0, job=f"job{number}")
    cluster.service.jobs()
    return cluster


def test_the_work_of_a_list_of_jobs_and_of_figures_grows_with_their_number() -> None:
    few, many = _filled(10), _filled(40)
    assert len(many.service.jobs()) == 40
    assert work_of(many.service.jobs) < MOST * work_of(few.service.jobs)
    assert work_of(many.service.metrics) < MOST * work_of(few.service.metrics)


def test_documents_that_have_not_changed_are_not_looked_at_again() -> None:
    few, many = _filled(10), _filled(40)
    for cluster in (few, many):
        cluster.documents.actual()
    assert work_of(many.documents.actual) < 1.5 * work_of(few.documents.actual) + 1000
    before = many.documents.assignments()
    assert many.documents.assignments() is before
    many.member(0, "n2", job="job7", revision=2)
    after, changed = many.documents.assignments(), ReplicaId("job7")
    assert (before[changed].node, after[changed].node) == ("n0", "n2"), "who has the old ones keeps them"
    assert list(after) == sorted(after)


class _Lab:
    """A leader with a job that runs on n1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ensemble = MemoryEnsemble()
        self.other = MemoryStore(self.ensemble)
        self.master = Master(MemoryStore(self.ensemble), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
        self.decided = 0

        def counted(*args: object, **kwargs: object) -> object:
            self.decided += 1
            return reconcile(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr("penstock.master.master.reconcile", counted)
        self.master.step(0.0)
        for name in ("n1", "n2"):
            self.other.create(f"{store_paths.NODES}/{name}", encode(NodeInfo(name, "", 4, 8 << 30)))
        self.other.create(f"{store_paths.REPORTS}/n1", encode(_report(1)))
        self.other.create(
            f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py", driver="n1"))
        )
        self.settle(1.0)
        self.worker = WorkerInfo("job", 1, 1, "n1", 7, "running", 1.0, progress=Progress(batches=1, at=1.0))
        self.other.create(store_paths.worker("job", 1, 1), encode(self.worker), ephemeral=True)
        self.settle(10.0)

    def settle(self, now: float) -> None:
        for _ in range(5):
            self.master.step(now)

    def woken(self) -> bool:
        woken = self.master._wake.is_set()
        self.master._wake.clear()
        return woken

    def spec(self) -> JobSpec:
        node = self.other.get(f"{store_paths.JOBS}/job")
        assert node is not None
        return decode(JobSpec, node.data)

    def listed(self) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in self.other.children(store_paths.NODE_JOBS):
            node = self.other.get(f"{store_paths.NODE_JOBS}/{name}")
            assert node is not None
            found[name] = decode(NodeJobs, node.data).jobs
        return found


def _report(batches: int, joined: ReplicaReport | None = None) -> NodeReport:
    progress = Progress(batches=batches, at=float(batches))
    figures = WorkerFigures("job", "driver", 1, 1, 7, "LIVE|running", 0.5, 1, 0.0, 0, progress, joined)
    return NodeReport(60.0, 0.5, 1, 2, 0.0, 0.0, (figures,))


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> _Lab:
    return _Lab(monkeypatch)


def test_reports_wake_no_master_and_are_read_with_its_next_step(lab: _Lab) -> None:
    lab.woken()
    lab.other.set(f"{store_paths.REPORTS}/n1", encode(_report(50)))
    assert not lab.woken()
    lab.master.step(12.0)
    [worker] = lab.master.documents.workers()[ReplicaId("job")]
    assert worker.progress.batches == 1
    assert lab.master.documents.shown(worker).progress.batches == 50


def test_progress_alone_is_no_reason_to_decide_and_a_phase_is(lab: _Lab) -> None:
    lab.settle(11.0)
    decided = lab.decided
    lab.other.set(
        store_paths.worker("job", 1, 1), encode(replace(lab.worker, progress=Progress(batches=5, at=9.0)))
    )
    assert lab.woken()
    lab.master.step(11.1)
    assert lab.decided == decided
    [worker] = lab.master.documents.workers()[ReplicaId("job")]
    assert worker.progress.batches == 5
    lab.other.set(store_paths.worker("job", 1, 1), encode(replace(lab.worker, phase="stopping")))
    lab.master.step(11.2)
    assert lab.decided > decided
    lab.settle(12.5)
    decided = lab.decided
    lab.master.step(14.0)
    assert lab.decided > decided, "deadlines pass without a change"


def test_each_node_has_a_list_of_its_jobs(lab: _Lab) -> None:
    assert lab.listed() == {"n1": ("job",)}
    node = lab.other.get(store_paths.EPOCH)
    assert node is not None
    assert decode(Epoch, node.data).lists_jobs
    lab.other.set(f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py", driver="n2")))
    lab.settle(20.0)
    assert lab.listed() == {"n2": ("job",)}
    lab.other.set(f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py", wanted="ended")))
    lab.settle(30.0)
    assert lab.listed() == {}


def test_lists_that_another_leader_has_left_are_put_right(lab: _Lab) -> None:
    lab.other.delete(f"{store_paths.NODE_JOBS}/n1")
    lab.other.create(f"{store_paths.NODE_JOBS}/n2", encode(NodeJobs("n2", ("job", "gone"))))
    lab.settle(20.0)
    lab.settle(22.0)
    assert lab.listed() == {"n1": ("job",)}


def test_a_list_names_executors_as_well() -> None:
    from penstock.cluster.assignment_documents import ExecutorSlot
    from penstock.cluster.assignments import jobs_by_node

    slots = (ExecutorSlot(1, "n2", 1, 1), ExecutorSlot(2, "n1", 1, 1))
    assigned = make_assignment("job", 1, 1, 1, "", "", "n1", 1, 1, executors=slots)
    found = jobs_by_node(
        by_replica({"job": assigned, "a": make_assignment("a", 1, 1, 1, "", "", "n2", 1, 1)})
    )
    assert {node: listed.jobs for node, listed in found.items()} == {"n1": ("job",), "n2": ("a", "job")}


def test_how_far_a_replica_has_caught_up_is_decided_on_its_nodes_report() -> None:
    cluster = Cluster()
    cluster.job(k=1, agreed=True)
    cluster.member(0, joined=ReplicaReport(100, 100, 0))
    cluster.member(1, joined=ReplicaReport(10, 100, 0))
    further = ReplicaReport(50, 100, 0)
    figures = WorkerFigures("job~1", "driver", 2, 1, 7, "", 0.5, 1, 0.0, 0, Progress(at=9.0), further)
    cluster.put(f"{store_paths.REPORTS}/n1", NodeReport(60.0, 0.5, 1, 2, 0.0, 0.0, (figures,)))
    [worker] = cluster.documents.actual().workers[ReplicaId("job", 1)]
    assert worker.joined == further
    [_, replica] = cluster.service.job("job")["replicas"]
    assert (replica["batch"], replica["behind"]) == (50, 50)


def test_that_an_update_runs_well_is_decided_on_its_nodes_report(lab: _Lab) -> None:
    path = f"{store_paths.JOBS}/job"
    spec = replace(lab.spec(), before=Code("0" * 64, "job.py", {}, 0))
    lab.other.set(path, encode(spec))
    lab.settle(12.0)
    assert lab.spec().before is not None, "nobody knows yet that it has done anything"
    lab.other.set(f"{store_paths.REPORTS}/n1", encode(_report(50)))
    lab.settle(20.0)
    assert lab.spec().before is None


def test_list_status_and_figures_show_the_progress_that_a_node_has_reported(lab: _Lab) -> None:
    service = ClusterService(lab.master, AnyBundle(), NoLogs())
    lab.other.set(f"{store_paths.REPORTS}/n1", encode(_report(50)))
    lab.master.step(12.0)
    assert service.jobs()[0]["progress"]["batches"] == 50
    assert service.job("job")["workers"][0]["progress"]["batches"] == 50
    assert 'penstock_job_batches_total{job="job"} 50' in service.metrics()
    lab.other.delete(f"{store_paths.REPORTS}/n1")
    lab.master.step(14.0)
    assert service.jobs()[0]["progress"]["batches"] == 50, "its supervisor is away, and it runs on"
