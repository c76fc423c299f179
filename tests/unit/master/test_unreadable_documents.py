"""Documents of another version: nothing is unassigned, ended or overwritten, and people are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from without_code import AnyBundle, NoLogs

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.client_requests import RefusedError
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import Alarm, Code, JobStatus
from penstock.cluster.node_documents import Epoch, MasterInfo, NodeInfo, NodeReport
from penstock.cluster.worker_documents import Failures, Progress, Result, WorkerFigures, WorkerInfo
from penstock.cluster.worker_supervision import ObservedProcess, Start
from penstock.coord import store_paths
from penstock.coord.conditional_writes import put_result
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.node_mirror import NodeMirror
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, make_spec, make_submission

JOB = make_spec("job", "a" * 64, "job.py")
LATER = b'{"schema":3,"what":"nobody here knows"}'
SUBMISSION = make_submission("job.py", {"name": "job", "vertices": []})


class _Cluster:
    """A leader, two nodes, and a job that runs on one of them."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.master = Master(MemoryStore(self.ensemble), MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
        self.service = ClusterService(self.master, AnyBundle(), NoLogs(), lambda: 1.0)
        self.now = 100.0
        self.step()
        for name in ("n1", "n2"):
            self.store.create(f"{store_paths.NODES}/{name}", encode(NodeInfo(name, "", 4, 8 << 30)))
        self.store.create(f"{store_paths.JOBS}/job", encode(JOB))
        self.step()
        self.node = self.read(Assignment, f"{store_paths.ASSIGNMENTS}/job").node
        done = Progress(batches=2, records_in=10)
        worker = WorkerInfo("job", 1, 1, self.node, 1, "running", 1.0, progress=done)
        self.store.create(store_paths.worker("job", 1, 1), encode(worker))
        self.step()

    def step(self, times: int = 4) -> None:
        for _ in range(times):
            self.now += 5.0
            self.master.step(self.now)

    def read(self, kind: type[Any], path: str) -> Any:
        node = self.store.get(path)
        assert node is not None, path
        return decode(kind, node.data)

    def put(self, path: str, data: bytes) -> None:
        if self.store.get(path) is None:
            self.store.create(path, data)
        else:
            self.store.set(path, data)

    def written(self) -> dict[str, bytes]:
        """Return all that a leader has written, and what is at places of which it could write some."""
        roots = (
            store_paths.JOBS,
            store_paths.ASSIGNMENTS,
            store_paths.STATUS,
            store_paths.RESULTS,
            store_paths.FAILURES,
            store_paths.ALARMS,
        )
        found = {f"{root}/{name}" for root in roots for name in self.store.children(root)}
        nodes = {path: self.store.get(path) for path in sorted(found)}
        return {path: node.data for path, node in nodes.items() if node is not None}

    def alarms(self) -> list[str]:
        return self.store.children(store_paths.ALARMS)


@pytest.mark.parametrize(
    "path",
    [
        f"{store_paths.JOBS}/job",
        f"{store_paths.ASSIGNMENTS}/job",
        f"{store_paths.STATUS}/job",
        store_paths.worker("job", 1, 1),
        f"{store_paths.RESULTS}/job",
        f"{store_paths.FAILURES}/job",
        f"{store_paths.KEPT}/job",
    ],
)
def test_a_job_of_which_a_document_has_a_later_schema_is_left_alone(path: str) -> None:
    cluster = _Cluster()
    known = cluster.store.get(path)
    cluster.put(path, LATER)
    before = cluster.written()
    cluster.step()
    after = cluster.written()
    alarm = decode(Alarm, after.pop(f"{store_paths.ALARMS}/unreadable.job"))
    assert after == before
    assert (alarm.subject, path in alarm.reason, "schema 3" in alarm.reason) == ("job", True, True)
    changes: list[Callable[[], object]] = [
        lambda: cluster.service.submit(SUBMISSION, "b" * 64),
        lambda: cluster.service.update("job", SUBMISSION, "b" * 64),
        lambda: cluster.service.kill("job", drain=False),
        lambda: cluster.service.resubmit("job", fresh=True),
        lambda: cluster.service.migrate("job", "n2"),
    ]
    for change in changes:
        with pytest.raises(RefusedError, match=r"no change of job.*schema 3.*upgrade"):
            change()
    assert [job["name"] for job in cluster.service.jobs()] == ["job"]
    if known is None:
        cluster.store.delete(path)
    else:
        cluster.store.set(path, known.data)
    cluster.step()
    assert cluster.alarms() == []
    assert cluster.service.kill("job", drain=False)["name"] == "job"


def test_a_node_that_cannot_be_read_is_not_gone() -> None:
    cluster = _Cluster()
    cluster.store.delete(store_paths.worker("job", 1, 1))
    cluster.put(f"{store_paths.NODES}/{cluster.node}", LATER)
    cluster.step(6)
    assert cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job").node == cluster.node
    assert cluster.alarms() == [f"unreadable.{cluster.node}"]


def test_without_the_note_of_revisions_no_job_is_forgotten_and_no_new_one_is_taken() -> None:
    cluster = _Cluster()
    cluster.service.kill("job", drain=False)
    cluster.store.delete(store_paths.worker("job", 1, 1))
    cluster.step()
    cluster.store.create(store_paths.REVISIONS, LATER)
    before = cluster.written()
    cluster.now += 30 * 86400.0
    cluster.step()
    after = cluster.written()
    alarm = decode(Alarm, after.pop(f"{store_paths.ALARMS}/unreadable.masters.revisions"))
    assert (alarm.subject, "schema 3" in alarm.reason) == (store_paths.REVISIONS, True)
    assert after == before, "a job that has ended a month ago"
    new = make_submission("job.py", {"name": "new", "vertices": []})
    changes: list[Callable[[], object]] = [
        lambda: cluster.service.submit(new, "b" * 64),
        lambda: cluster.service.forget("job", data=False),
    ]
    for change in changes:
        with pytest.raises(RefusedError, match=r"not known: /masters/revisions: .*schema 3.*upgrade"):
            change()
    found = cluster.store.get(store_paths.REVISIONS)
    assert found is not None
    assert found.data == LATER
    cluster.store.delete(store_paths.REVISIONS)
    cluster.step()
    assert (cluster.alarms(), cluster.store.children(store_paths.JOBS)) == ([], [])
    assert cluster.service.submit(new, "b" * 64)["name"] == "new"


def test_a_job_whose_tombstone_cannot_be_read_is_not_submitted() -> None:
    """It may say that the data of an earlier job of that name is being removed."""
    cluster = _Cluster()
    cluster.store.create(f"{store_paths.TOMBSTONES}/new", LATER)
    cluster.step()
    assert cluster.alarms() == ["unreadable.new"]
    new = make_submission("job.py", {"name": "new", "vertices": []})
    with pytest.raises(RefusedError, match=r"no change of job.*schema 3.*upgrade"):
        cluster.service.submit(new, "b" * 64)


def test_an_alarm_that_cannot_be_read_is_neither_written_again_nor_cleared() -> None:
    cluster = _Cluster()
    cluster.put(f"{store_paths.ALARMS}/job-failed.job", LATER)
    cluster.put(f"{store_paths.FAILURES}/job", encode(Failures("job", 1, 8, "it died", "n1", 1.0)))
    cluster.step()
    assert cluster.read(JobStatus, f"{store_paths.STATUS}/job").phase == "FAILED"
    node = cluster.store.get(f"{store_paths.ALARMS}/job-failed.job")
    assert node is not None
    assert (node.data, node.version) == (LATER, 0)
    assert not cluster.master.documents.actual().alarms


def test_an_alarm_of_another_version_does_not_keep_a_leader_from_deciding() -> None:
    cluster = _Cluster()
    alarm = Alarm("job-failed.job", "job-failed", "job", "it failed", 1.0, {"since": "when"})
    cluster.put(f"{store_paths.ALARMS}/job-failed.job", encode(alarm))
    cluster.step()
    assert cluster.alarms() == ["job-failed.job"], "it is not known of which revision it is"
    cluster.service.clear("job-failed.job")
    cluster.step()
    assert cluster.alarms() == []


def _with_more(data: bytes) -> bytes:
    content = json.loads(data)
    content["more"] = {"of": "this"}
    if "settings" in content:
        content["settings"]["resources"]["gpus"] = 2
    return json.dumps(content).encode()


def _content(cluster: _Cluster, path: str) -> dict[str, Any]:
    node = cluster.store.get(path)
    assert node is not None
    content = json.loads(node.data)
    assert isinstance(content, dict)
    return content


def test_fields_of_a_later_version_survive_changes_by_this_one() -> None:
    cluster = _Cluster()
    path = f"{store_paths.JOBS}/job"
    before = Code("0" * 64, "job.py", {}, 0)
    cluster.put(path, _with_more(encode(make_spec("job", "a" * 64, "job.py", before=before))))
    cluster.step()
    found = _content(cluster, path)
    assert found["before"] is None, "the leader has written that the new code runs"
    assert (found["more"], found["settings"]["resources"]["gpus"]) == ({"of": "this"}, 2)
    cluster.service.scale("job", {"memory": 3 << 30}, None)
    found = _content(cluster, path)
    assert (
        found["more"],
        found["settings"]["resources"]["gpus"],
        found["settings"]["resources"]["memory"],
    ) == (
        {"of": "this"},
        2,
        3 << 30,
    )
    cluster.step()
    cluster.service.kill("job", drain=False)
    cluster.store.delete(store_paths.worker("job", 1, 1))
    cluster.step()
    cluster.service.resubmit("job", fresh=False)
    assert _content(cluster, path)["more"] == {"of": "this"}
    cluster.step()
    cluster.service.kill("job", drain=False)
    cluster.step()
    cluster.service.submit(SUBMISSION, "b" * 64)
    assert "more" not in _content(cluster, path), "who submits a job says all that is wanted of it"


def test_fields_of_an_assignment_survive_as_long_as_its_revision_does() -> None:
    cluster = _Cluster()
    path = f"{store_paths.ASSIGNMENTS}/job"
    cluster.put(path, _with_more(encode(cluster.read(Assignment, path))))
    cluster.step()
    cluster.service.kill("job", drain=True)
    cluster.step()
    found = _content(cluster, path)
    assert (found["settings"]["until"], found["more"]) == ("drained", {"of": "this"})
    cluster.put(f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py", restarts=1)))
    cluster.step()
    found = _content(cluster, path)
    assert (found["revision"], "more" in found) == (2, False)


class _Running:
    """A node on which a worker of the job runs."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def look(self, now: float) -> list[ObservedProcess]:
        return [ObservedProcess("job", "driver", 1, 1, 1, True, now, heartbeat=now, phase="running")]

    def start(self, start: Start, now: float) -> None:
        raise AssertionError("its worker runs")

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        self.asked.append(instance.job)

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        self.asked.append(instance.job)

    def count(self, instance: ObservedProcess) -> None:
        return

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        return (0.0, 0, 0)

    def sample(self, now: float) -> MachineSample:
        return MachineSample(0.0, 0, 0, 0.0, 0.0)


def test_a_supervisor_does_not_end_a_job_whose_assignment_it_cannot_read_and_says_so() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.create(f"{store_paths.ASSIGNMENTS}/job", LATER)
    running = _Running()
    supervisor = Supervisor(store, NodeInfo("n1", "", 1, 1), running, running)
    for moment in (10.0, 200.0):
        supervisor.step(moment)
    assert running.asked == []
    report = store.get(f"{store_paths.REPORTS}/n1")
    assert report is not None
    assert "schema 3" in decode(NodeReport, report.data).unreadable["job"]
    store.delete(f"{store_paths.ASSIGNMENTS}/job")
    supervisor.step(300.0)
    assert running.asked == ["job"]


def test_a_supervisor_that_cannot_read_its_list_looks_at_all_assignments() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.create(store_paths.EPOCH, encode(Epoch(1, "m1", "", 1.0, lists_jobs=True)))
    store.create(f"{store_paths.NODE_JOBS}/n1", LATER)
    assignment = make_assignment("job", 1, 1, 1, "a" * 64, "job.py", "n1", 1, 1 << 30)
    store.create(f"{store_paths.ASSIGNMENTS}/job", encode(assignment))
    mirror = NodeMirror(store, "n1", lambda: None)
    mirror.refresh(())
    assert mirror.knows(assignment.replica)
    assert mirror.documents.assignments() == {assignment.replica: assignment}


def test_the_leader_tells_people_what_a_supervisor_cannot_read() -> None:
    cluster = _Cluster()
    report = NodeReport(1.0, 0.0, 0, 0, 0.0, 0.0, unreadable={"job": "/assignments/job: schema 3"})
    cluster.put(f"{store_paths.REPORTS}/n2", encode(report))
    cluster.step()
    assert "supervisor of n2" in cluster.read(Alarm, f"{store_paths.ALARMS}/unreadable.job").reason
    cluster.store.delete(f"{store_paths.REPORTS}/n2")
    cluster.step()
    assert cluster.alarms() == []


def test_a_result_that_cannot_be_read_is_not_overwritten() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.create(f"{store_paths.RESULTS}/job", LATER)
    put_result(store, Result("job", 3, "drained", "all is processed", 1.0))
    node = store.get(f"{store_paths.RESULTS}/job")
    assert node is not None
    assert node.data == LATER


_WORKER = encode(WorkerInfo("job", 1, 2, "n2", 1, "running", 1.0))
_FOREIGN = {
    "/assignments/job~01": encode(make_assignment("job", 1, 1, 1, "a" * 64, "job.py", "n2")),
    "/workers/job~x/1-2": _WORKER,
    "/workers/job/1-2": _WORKER.replace(b'"job":"job"', b'"job":"job~0"'),
    "/results/job~0": encode(Result("job", 1, "drained", "", 1.0)),
    "/failures/job~1~2": encode(Failures("job", 1, 9, "it died", "n2", 1.0)),
    "/status/job~1": encode(JobStatus("ENDED", "", 1.0, 1)),
    "/jobs/job~1": encode(JOB),
    "/jobs/job~x": encode(JOB),
    "/jobs/other": encode(JOB).replace(b'"name":"job"', b'"name":"job~1"'),
}


@pytest.mark.parametrize("path", _FOREIGN)
def test_a_name_that_no_replica_has_is_an_unreadable_document(path: str) -> None:
    cluster = _Cluster()
    before = cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job")
    parent = path.rpartition("/")[0]
    if cluster.store.get(parent) is None:
        cluster.store.create(parent)
    cluster.store.create(path, _FOREIGN[path])
    cluster.master.step(cluster.now)
    cluster.step()
    assert cluster.read(Assignment, f"{store_paths.ASSIGNMENTS}/job") == before
    node = cluster.store.get(path)
    assert node is not None
    assert node.data == _FOREIGN[path]
    about = "other" if path.endswith("/other") else "job"
    alarm = cluster.read(Alarm, f"{store_paths.ALARMS}/unreadable.{about}")
    assert path in alarm.reason
    assert cluster.service.metrics()
    assert [job["name"] for job in cluster.service.jobs()]


def test_a_report_about_a_name_that_no_replica_has_is_not_read() -> None:
    cluster = _Cluster()
    figures = WorkerFigures("job", "executor-1", 1, 1, 0, "LIVE|failed", 0.0, 0, 1.0, failures=9)
    report = encode(NodeReport(1.0, 0.0, 0, 0, 0.0, 0.0, (figures,)))
    cluster.put(f"{store_paths.REPORTS}/n2", report.replace(b'"job":"job"', b'"job":"~7"'))
    cluster.step()
    assert cluster.master.documents.all(NodeReport, store_paths.REPORTS) == {}
    assert cluster.service.jobs()[0]["phase"] == "RUNNING"
