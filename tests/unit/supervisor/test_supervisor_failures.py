"""A supervisor whose workers fail, hang or cannot even be started, on a table of processes."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.bundles.bundle_cache import FailedStartError, RefusedStartError
from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.worker_documents import Failures, Result, WorkerInfo
from penstock.coord import store_paths
from penstock.keyring import Keyring
from penstock.supervisor.machine_load import MachineSample
from penstock.supervisor.node_instances import FolderInstances, NodeSettings
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.fake_processes import FakeProcesses
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, replace

RING = Keyring(bytes(32))


class _Machine:
    def sample(self, now: float) -> MachineSample:
        return MachineSample(0.0, 0, 0, 0.0, 0.0)


class Lab:
    """A node with a supervisor, and two clocks: the machine's own, and the time of day."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore(MemoryEnsemble())
        for root in (
            store_paths.NODES,
            store_paths.REPORTS,
            store_paths.ASSIGNMENTS,
            store_paths.WORKERS,
            store_paths.FAILURES,
        ):
            self.store.create(root)
        self.store.create(store_paths.RESULTS)
        self.processes = FakeProcesses()
        self.moment, self.wall = 5000.0, 1_700_000_000.0
        self.trouble: dict[str, Exception] = {}
        """By bundle: what comes of unpacking it."""
        self.supervisor = self.begin()

    def begin(self) -> Supervisor:
        node = NodeSettings(
            "n1", "127.0.0.2", self.folder, self.folder / "storage", self.folder, "zk:1", "/penstock"
        )
        instances = FolderInstances(node, self.processes, RING, self._unpacked, wall=lambda: self.wall)
        info = NodeInfo("n1", "", 4, 1 << 33)
        return Supervisor(self.store, info, instances, _Machine(), monotonic=lambda: self.moment)

    def _unpacked(self, sha256: str) -> Path:
        if sha256 in self.trouble:
            raise self.trouble[sha256]
        return self.folder / sha256

    def assign(self, job: str, **changes: Any) -> None:
        made = make_assignment(job, 1, 1, 1, f"bundle-of-{job}", "job.py", "n1", 1, 1 << 30)
        self.store.create(f"{store_paths.ASSIGNMENTS}/{job}", encode(replace(made, **changes)))

    def pass_time(self, seconds: float, every: float = 0.5) -> None:
        """Let time pass, and the supervisor look up now and then."""
        for _ in range(int(seconds / every)):
            self.moment += every
            self.wall += every
            self.step()

    def step(self) -> None:
        """Let the supervisor do what there is to do: what it counts, it acts on with the next step."""
        for _ in range(2):
            self.supervisor.step(self.wall)

    def failures(self, job: str) -> Failures | None:
        node = self.store.get(f"{store_paths.FAILURES}/{job}")
        return decode(Failures, node.data) if node is not None else None

    def place(self, job: str, attempt: int, role: str = "driver") -> Path:
        return self.folder / "instances" / f"{job}-{role}-000001-{attempt:04d}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_start_without_a_process_is_counted_and_tried_again_after_a_back_off(lab: Lab) -> None:
    lab.assign("job")
    lab.processes.refuse("Resource temporarily unavailable")
    lab.step()
    first = lab.failures("job")
    assert first is not None
    assert (first.count, first.node) == (1, "n1")
    assert "it could not be started: " in first.reason
    assert "Resource temporarily unavailable" in first.reason
    lab.pass_time(8.0)
    later = lab.failures("job")
    assert later is not None
    assert later.count == 5, "after 0, 0.5, 1.5, 3.5 and 7.5 s"
    lab.processes.refuse("")
    lab.pass_time(8.0)
    assert len(lab.processes.started) == 1, "it runs when that is over"


def test_a_full_disk_does_not_keep_the_supervisor_from_its_other_work(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.assign("a")
    lab.assign("b")
    mkdir = Path.mkdir

    def full(path: Path, *arguments: Any, **named: Any) -> None:
        if path.name.startswith("a-driver"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        mkdir(path, *arguments, **named)

    monkeypatch.setattr(Path, "mkdir", full)
    lab.step()
    assert lab.processes.alive(lab.place("b", 1))
    failures = lab.failures("a")
    assert failures is not None
    assert "No space left on device" in failures.reason
    assert lab.store.get(f"{store_paths.REPORTS}/n1") is not None, "the step went on to its end"


def test_a_worker_that_does_not_leave_is_killed_in_time_on_a_full_disk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.assign("job")
    lab.step()
    place = lab.place("job", 1)
    lab.processes.hang(place)
    lab.store.delete(f"{store_paths.ASSIGNMENTS}/job")

    def full(path: Path, content: bytes | str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("penstock.daemon.worker_folder.write_private", full)
    lab.pass_time(80.0, every=5.0)
    assert lab.processes.processes[place].signals == [signal.SIGTERM], "it is asked once"
    assert lab.processes.alive(place)
    lab.pass_time(20.0, every=5.0)
    assert not lab.processes.alive(place)


@pytest.mark.parametrize("content", ['{"job": "odd"}', '{"job": 7, "role": []}', "[]", "{"])
def test_a_folder_that_cannot_be_read_does_not_keep_the_supervisor_from_its_other_work(
    lab: Lab, content: str
) -> None:
    odd = lab.place("odd", 1)
    odd.mkdir(parents=True)
    (odd / "instance.json").write_text(content)
    lab.assign("job")
    lab.step()
    assert lab.processes.alive(lab.place("job", 1))
    assert lab.store.get(f"{store_paths.REPORTS}/n1") is not None
    assert (odd / "instance.json").read_text() == content


def test_a_process_that_cannot_be_ended_or_measured_keeps_the_supervisor_from_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("a", "b"):
        lab.assign(job)
    lab.step()
    asked, measured = lab.processes.signal, lab.processes.figures

    def signalled(folder: Path, number: int, *, family: bool = False) -> bool:
        if folder == lab.place("a", 1):
            raise KeyError("pid")
        return asked(folder, number, family=family)

    def figures(folder: Path) -> tuple[float, int]:
        if folder == lab.place("a", 1):
            raise ValueError("not a number")
        return measured(folder)

    monkeypatch.setattr(lab.processes, "signal", signalled)
    monkeypatch.setattr(lab.processes, "figures", figures)
    lab.pass_time(4.0)
    lab.store.delete(f"{store_paths.REPORTS}/n1")
    for job in ("a", "b"):
        lab.store.delete(f"{store_paths.ASSIGNMENTS}/{job}")
    lab.pass_time(4.0)
    assert lab.processes.alive(lab.place("a", 1))
    assert not lab.processes.alive(lab.place("b", 1))
    node = lab.store.get(f"{store_paths.REPORTS}/n1")
    assert node is not None
    assert [figures.job for figures in decode(NodeReport, node.data).workers] == ["a"]


def test_a_start_that_fails_in_an_unexpected_way_is_counted_like_others(lab: Lab) -> None:
    lab.assign("a")
    lab.assign("b")
    lab.trouble["bundle-of-a"] = ValueError("embedded null byte")
    lab.step()
    assert lab.processes.alive(lab.place("b", 1))
    failures = lab.failures("a")
    assert failures is not None
    assert (failures.count, failures.reason) == (1, "it could not be started: ValueError: embedded null byte")


def test_a_nodes_trouble_with_a_bundle_is_a_failure_and_not_the_end_of_the_job(lab: Lab) -> None:
    lab.assign("job")
    lab.trouble["bundle-of-job"] = FailedStartError("this node lacks what the job requires: numpy>=9")
    lab.pass_time(4.0)
    assert lab.store.get(f"{store_paths.RESULTS}/job") is None
    failures = lab.failures("job")
    assert failures is not None
    assert failures.count >= 3, "the leader moves it"
    assert "numpy>=9" in failures.reason


def test_a_bundle_that_is_not_to_be_trusted_is_refused_for_the_job(lab: Lab) -> None:
    lab.assign("job")
    lab.trouble["bundle-of-job"] = RefusedStartError("the bundle's signature is wrong")
    lab.step()
    node = lab.store.get(f"{store_paths.RESULTS}/job")
    assert node is not None
    assert decode(Result, node.data).outcome == "refused"
    assert lab.failures("job") is None


def test_a_worker_that_hangs_in_its_start_is_counted_and_said_to_have_hung(lab: Lab) -> None:
    lab.assign("job")
    lab.step()
    heartbeat = f'{{"phase": "starting", "monotonic": {lab.moment}}}'
    (lab.place("job", 1) / "heartbeat").write_text(heartbeat)
    lab.pass_time(119.0, every=1.0)
    assert lab.processes.alive(lab.place("job", 1))
    lab.pass_time(3.0, every=1.0)
    assert not lab.processes.alive(lab.place("job", 1))
    failures = lab.failures("job")
    assert failures is not None
    assert (failures.count, failures.reason) == (1, "hung: no sign of life for 121 s in its start")
    assert lab.processes.alive(lab.place("job", 2)), "it was started again"


@pytest.mark.parametrize("jump", [40.0, -3600.0])
def test_a_clock_that_is_set_kills_no_worker_and_delays_no_start(lab: Lab, jump: float) -> None:
    lab.assign("job")
    lab.step()
    heartbeat = f'{{"phase": "running", "monotonic": {lab.moment}}}'
    (lab.place("job", 1) / "heartbeat").write_text(heartbeat)
    lab.step()
    lab.wall += jump
    lab.step()
    assert lab.processes.alive(lab.place("job", 1))
    lab.processes.end(lab.place("job", 1), code=1)
    lab.wall -= 2 * jump
    lab.pass_time(2.0)
    assert lab.processes.alive(lab.place("job", 2))
    reported = lab.store.get(f"{store_paths.REPORTS}/n1")
    lab.wall -= 3600
    lab.pass_time(4.0)
    again = lab.store.get(f"{store_paths.REPORTS}/n1")
    assert reported is not None
    assert again is not None
    assert again.version > reported.version, "reports go on as well"


def test_a_supervisor_that_is_started_again_does_not_lose_count_of_a_hung_worker(lab: Lab) -> None:
    lab.assign("job")
    lab.step()
    heartbeat = f'{{"phase": "running", "monotonic": {lab.moment}}}'
    (lab.place("job", 1) / "heartbeat").write_text(heartbeat)
    lab.pass_time(20.0, every=1.0)
    lab.supervisor = lab.begin()
    lab.pass_time(12.0, every=1.0)
    assert not lab.processes.alive(lab.place("job", 1))


def test_after_a_reboot_the_machines_clock_begins_anew_and_nothing_waits_for_it(lab: Lab) -> None:
    lab.assign("job")
    lab.step()
    heartbeat = f'{{"phase": "running", "monotonic": {lab.moment + 700}, "progress": {{"batches": 5}}}}'
    (lab.place("job", 1) / "heartbeat").write_text(heartbeat)
    lab.processes.crash_machine()
    lab.moment = 20.0
    lab.supervisor = lab.begin()
    lab.pass_time(1.0)
    assert lab.processes.alive(lab.place("job", 2))
    failures = lab.failures("job")
    assert failures is not None
    assert (failures.count, failures.recent[0].well) == (1, True)


def test_an_executor_that_keeps_failing_is_in_the_report_of_its_node(lab: Lab) -> None:
    slot = ExecutorSlot(1, "n1", 1, 1 << 30)
    lab.assign("job", node="n2", executors=(slot,))
    driver = WorkerInfo("job", 1, 1, "n2", 1, "running", 0.0, "spark://driver", "app-1")
    lab.store.create(f"{store_paths.WORKERS}/job")
    lab.store.create(f"{store_paths.WORKERS}/job/1-1", encode(driver))
    for attempt in range(1, 8):
        lab.pass_time(31.0)
        assert lab.processes.alive(lab.place("job", attempt, "executor-1"))
        lab.processes.end(lab.place("job", attempt, "executor-1"), code=1)
    lab.pass_time(4.0)
    node = lab.store.get(f"{store_paths.REPORTS}/n1")
    assert node is not None
    [figures] = decode(NodeReport, node.data).workers
    assert (figures.role, figures.failures, figures.pid) == ("executor-1", 7, 0)
    assert figures.state == "LIVE|waiting"
    assert figures.reason == "it ended with exit code 1"


def _state(lab: Lab) -> str:
    lab.pass_time(4.0)
    node = lab.store.get(f"{store_paths.REPORTS}/n1")
    assert node is not None
    [figures] = decode(NodeReport, node.data).workers
    return figures.state


def _reassign(lab: Lab, **changes: Any) -> None:
    path = f"{store_paths.ASSIGNMENTS}/job"
    node = lab.store.get(path)
    assert node is not None
    lab.store.set(path, encode(replace(decode(Assignment, node.data), **changes)))


def test_the_report_shows_a_worker_whose_job_was_moved_away_as_one_without_assignment(lab: Lab) -> None:
    lab.assign("job")
    assert _state(lab) == "LIVE|running"
    _reassign(lab, revision=2, node="n2")
    assert _state(lab) == "VOID|running"


def test_the_report_shows_an_executor_whose_slot_was_moved_away_as_one_without_assignment(lab: Lab) -> None:
    lab.assign("job", node="n2", executors=(ExecutorSlot(1, "n1", 1, 1 << 30),))
    driver = WorkerInfo("job", 1, 1, "n2", 1, "running", 0.0, "spark://driver", "app-1")
    lab.store.create(f"{store_paths.WORKERS}/job")
    lab.store.create(f"{store_paths.WORKERS}/job/1-1", encode(driver))
    assert _state(lab) == "LIVE|running"
    _reassign(lab, executors=(ExecutorSlot(1, "n3", 1, 1 << 30),))
    assert _state(lab) == "VOID|running"


def test_the_report_shows_the_state_by_which_a_worker_beside_a_dead_successor_is_supervised(lab: Lab) -> None:
    lab.assign("job")
    lab.step()
    lab.processes.refuse("Resource temporarily unavailable")
    _reassign(lab, revision=2)
    assert _state(lab) == "LIVE|waiting", "its successor was tried, and waits for its back-off"
