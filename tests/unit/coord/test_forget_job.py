"""Jobs that are over are forgotten, at a user's wish or after a while; what is left of them is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from without_code import AnyBundle, NoLogs

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.client_requests import NotFoundError, RefusedError
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import Alarm, JobStatus, Tombstone
from penstock.cluster.job_retention import Retention
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.cluster.worker_documents import Failures, Result, WorkerInfo
from penstock.coord import store_paths
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master, MasterSettings
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_submission


class _Cluster:
    """A leader and a node on which jobs end as soon as they are assigned."""

    def __init__(self, retention: Retention | None = None) -> None:
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        settings = MasterSettings(retention=retention or Retention())
        self.master = Master(MemoryStore(self.ensemble), MasterInfo("m1", "", 1, 0.0, ""), settings=settings)
        self.now = 1000.0
        self.service = ClusterService(self.master, AnyBundle(), NoLogs(), lambda: self.now)
        self.step()
        self.store.create(f"{store_paths.NODES}/n1", encode(NodeInfo("n1", "", 4000, 1 << 50)))
        self.step()

    def step(self, times: int = 3) -> None:
        for _ in range(times):
            self.now += 1.0
            self.master.step(self.now)

    def submit(self, name: str, **more: Any) -> None:
        self.service.submit(make_submission("job.py", {"name": name, "vertices": []}, **more), "a" * 64)

    def end_all(self, outcome: str = "drained") -> None:
        """Do as workers do that end: each has had its place in the store."""
        for job in self.store.children(store_paths.ASSIGNMENTS):
            revision = self.read(Assignment, f"{store_paths.ASSIGNMENTS}/{job}").revision
            place = store_paths.worker(job, revision, 1)
            self.store.create(place, encode(WorkerInfo(job, revision, 1, "n1", 1, "running", 1.0)))
            self.store.delete(place)
            result = encode(Result(job, revision, outcome, "", self.now))
            if self.store.get(f"{store_paths.RESULTS}/{job}") is None:
                self.store.create(f"{store_paths.RESULTS}/{job}", result)
            else:
                self.store.set(f"{store_paths.RESULTS}/{job}", result)

    def read(self, kind: type[Any], path: str) -> Any:
        node = self.store.get(path)
        assert node is not None, path
        return decode(kind, node.data)

    def size(self, root: str = "/") -> int:
        """Return how many nodes there are."""
        names = self.store.children(root)
        return 1 + sum(self.size(f"{root.rstrip('/')}/{name}") for name in names)


def _mentions(cluster: _Cluster, job: str, root: str = "/") -> list[str]:
    found = []
    for name in cluster.store.children(root):
        path = f"{root.rstrip('/')}/{name}"
        if name.partition("~")[0] == job or name.endswith(f".{job}"):
            found.append(path)
        found += _mentions(cluster, job, path)
    return found


def test_a_job_that_is_forgotten_leaves_nothing_but_a_tombstone() -> None:
    cluster = _Cluster()
    cluster.submit("job")
    cluster.step()
    with pytest.raises(RefusedError, match="is STARTING: kill it first"):
        cluster.service.forget("job", data=False)
    cluster.store.create(f"{store_paths.FAILURES}/job~1", encode(Failures("job~1", 1, 1, "", "n1", 1.0)))
    alarm = Alarm("update-refused.job", "update-refused", "job", "", 1.0)
    cluster.store.create(f"{store_paths.ALARMS}/{alarm.id}", encode(alarm))
    cluster.end_all()
    cluster.step()
    told = cluster.service.forget("job", data=False)
    assert "cluster-jobs/job" in told["reason"]
    cluster.step()
    assert _mentions(cluster, "job") == [f"{store_paths.TOMBSTONES}/job"]
    stone = cluster.read(Tombstone, f"{store_paths.TOMBSTONES}/job")
    assert (stone.revision, stone.data) == (1, False)
    with pytest.raises(NotFoundError):
        cluster.service.job("job")


def test_a_job_is_not_forgotten_while_a_worker_of_it_is_left() -> None:
    cluster = _Cluster()
    cluster.submit("job")
    cluster.step()
    cluster.end_all()
    place = store_paths.worker("job", 1, 1)
    cluster.store.create(place, encode(WorkerInfo("job", 1, 1, "n1", 1, "stopping", 1.0)))
    cluster.step()
    with pytest.raises(RefusedError, match="has not left yet"):
        cluster.service.forget("job", data=False)
    cluster.store.delete(place)
    cluster.step()
    cluster.service.forget("job", data=False)


def test_a_job_of_the_same_name_goes_on_with_later_revisions() -> None:
    cluster = _Cluster()
    for revision in (1, 2, 3):
        cluster.submit("job")
        cluster.step()
        assert cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job").revision == revision
        cluster.end_all()
        cluster.step()
    cluster.service.forget("job", data=False)
    cluster.step()
    cluster.submit("job")
    cluster.step()
    assigned = cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job")
    assert (assigned.revision, assigned.fresh) == (4, False), "it goes on from what is in the storage"
    cluster.end_all()
    cluster.step()
    assert cluster.read(JobStatus, f"{store_paths.STATUS}/job").phase == "ENDED"
    cluster.service.forget("job", data=True)
    cluster.step()
    cluster.submit("job")
    cluster.step()
    assigned = cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job")
    assert (assigned.revision, assigned.fresh, assigned.forget) == (5, True, 4), "whatever is removed when"


def test_a_job_whose_data_is_with_its_node_is_forgotten_with_its_data_only() -> None:
    cluster = _Cluster(Retention(seconds=1.0))
    cluster.submit("job", data_location="node")
    cluster.step()
    cluster.end_all()
    cluster.step(5)
    assert "job" in cluster.master.documents.jobs(), "not by itself"
    with pytest.raises(RefusedError, match="--data"):
        cluster.service.forget("job", data=False)
    cluster.service.forget("job", data=True)
    assert cluster.read(Tombstone, f"{store_paths.TOMBSTONES}/job").data


def test_a_thousand_short_jobs_leave_the_store_bounded() -> None:
    cluster = _Cluster(Retention(jobs=40))
    largest = 0
    for first in range(0, 1000, 100):
        for number in range(first, first + 100):
            cluster.submit(f"job{number}")
        cluster.step()
        cluster.end_all()
        cluster.step(4)
        largest = max(largest, cluster.size())
    jobs = cluster.master.documents.jobs()
    assert len(jobs) == 40
    assert all(int(name[3:]) >= 900 for name in jobs), "the last ones"
    # A spec, a status, a result and the parent of its workers; a tombstone for as many as were forgotten.
    assert cluster.size() <= 40 * 5 + 30
    for _ in range(2):  # The jobs, and then their tombstones.
        cluster.now += 8 * 86400.0
        cluster.step()
    assert cluster.size() <= 30
    assert largest <= 140 * 5 + 30
