"""The processes of a node in their folders: started, looked at, adopted, asked, killed, cleared away."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from logged_events import logged_events

from penstock.bundles.bundle_cache import FailedStartError, RefusedStartError
from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerInfo
from penstock.cluster.worker_supervision import ObservedProcess, Start
from penstock.daemon.worker_folder import write_heartbeat
from penstock.errors import SettingError
from penstock.keyring import Keyring
from penstock.local_files import write_private
from penstock.process_logs.user_output import OutputLimits, OutputPlace, read_output_limits
from penstock.processes.process_control import ProcessError
from penstock.supervisor.node_instances import FolderInstances, NodeSettings
from penstock.testing.fake_processes import FakeProcesses
from support.settings import make_assignment, replace

RING = Keyring(bytes(32))
BUNDLE = "b" * 64


class Lab:
    """A node whose processes are entries of a table; a supervisor can be started anew on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes = FakeProcesses()
        self.wall = 1_700_000_000.0
        self.instances = self.supervisor()

    def supervisor(self) -> FolderInstances:
        node = NodeSettings(
            "n1", "127.0.0.2", self.folder, self.folder / "storage", self.folder, "zk:1", "/penstock"
        )
        return FolderInstances(
            node,
            self.processes,
            RING,
            lambda sha256: self.folder / "bundles" / sha256,
            wall=lambda: self.wall,
        )

    def start(self, attempt: int = 1, revision: int = 3, now: float = 100.0) -> ObservedProcess:
        self.instances.start(Start(_assignment(revision=revision), "driver", attempt, "why"), now)
        return self.one(attempt, revision, now)

    def one(self, attempt: int = 1, revision: int = 3, now: float = 100.0) -> ObservedProcess:
        found = self.instances.look(now)
        return next(one for one in found if (one.revision, one.attempt) == (revision, attempt))

    def place(self, attempt: int = 1, revision: int = 3) -> Path:
        return self.folder / "instances" / f"job-driver-{revision:06d}-{attempt:04d}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def _assignment(**changes: Any) -> Assignment:
    return replace(make_assignment("job", 1, 3, 2, BUNDLE, "job.py", "n1", 1, 1 << 30), **changes)


def test_a_worker_is_told_everything_by_its_folder_and_no_secret_by_its_command(lab: Lab) -> None:
    instance = lab.start()
    assert (instance.alive, instance.started, instance.generation) == (True, 100.0, 2)
    told = json.loads((lab.place() / "instance.json").read_text())
    assert (told["job"], told["host"], told["connect"], told["root"]) == (
        "job",
        "127.0.0.2",
        "zk:1",
        "/penstock",
    )
    assert told["bundle"].endswith(BUNDLE)
    assert (lab.place() / "instance.json").stat().st_mode & 0o077 == 0
    process = lab.processes.processes[lab.place()]
    assert process.argv[1:] == ("-m", "penstock.worker.worker_main", str(lab.place()))
    words = " ".join([*process.argv, *process.environment.values()])
    assert not [secret for secret in RING.secrets if secret in words]


def test_nothing_of_the_supervisors_environment_that_could_be_secret_is_passed_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "hush")
    lab.start()
    assert "hush" not in lab.processes.processes[lab.place()].environment.values()


def test_an_executor_gets_its_drivers_secret_in_the_environment_only(lab: Lab) -> None:
    driver = WorkerInfo("job", 3, 2, "n2", 1, "ready", 0.0, "spark://d", "app-7")
    slot = ExecutorSlot(4, "n1", 1, 1 << 30)
    lab.instances.start(Start(_assignment(), "executor-4", 5, "why", driver, slot), 100.0)
    [executor] = lab.instances.look(100.0)
    assert (executor.role, executor.app_id) == ("executor-4", "app-7")
    process = lab.processes.processes[lab.folder / "instances" / "job-executor-4-000003-0005"]
    secret = RING.spark_secret("job", 3, 2)
    assert secret in process.environment.values()
    assert secret not in " ".join(process.argv)
    assert "4005" in process.argv


def test_another_supervisor_finds_what_the_one_before_has_started(lab: Lab) -> None:
    lab.start()
    lab.processes.forget_children()
    lab.instances = lab.supervisor()
    assert lab.one().alive
    lab.processes.end(lab.place(), code=1)
    assert lab.one().reason == "the process has ended, and its exit code is not known"


def _beat(lab: Lab, phase: str, at: float | None, **more: Any) -> None:
    content = {"phase": phase, **({} if at is None else {"monotonic": at}), **more}
    write_private(lab.place() / "heartbeat", json.dumps(content))


def test_a_heartbeat_says_when_it_was_the_phase_and_what_was_done(lab: Lab) -> None:
    lab.start()
    assert lab.one().heartbeat == 0.0
    _beat(lab, "ready", 150.0)
    assert (lab.one().heartbeat, lab.one().phase) == (150.0, "ready")
    _beat(lab, "running", 160.0, progress={"batches": 2, "records_in": 7})
    assert (lab.one().heartbeat, lab.one().phase) == (160.0, "running")
    assert (lab.one().progress.batches, lab.one().progress.records_in) == (2, 7)


@pytest.mark.parametrize("jump", [40.0, 3600.0, -3600.0])
def test_times_of_a_process_do_not_depend_on_the_time_of_day(lab: Lab, jump: float) -> None:
    lab.start(now=100.0)
    _beat(lab, "running", 104.0)
    write_private(lab.place() / "pulse", json.dumps({"monotonic": 103.0}))
    lab.wall += jump
    os.utime(lab.place() / "heartbeat", (lab.wall, lab.wall))
    lab.processes.hang(lab.place())
    lab.instances.ask_to_end(lab.one(now=105.0), 105.0)
    lab.wall -= jump
    lab.instances = lab.supervisor()
    found = lab.one(now=106.0)
    assert (found.started, found.heartbeat, found.pulse, found.asked_to_end) == (100.0, 104.0, 103.0, 105.0)
    lab.processes.end(lab.place(), code=1)
    (lab.place() / "exit.json").write_text(json.dumps({"outcome": "failed", "reason": "no source"}))
    os.utime(lab.place() / "exit.json", (lab.wall + jump, lab.wall + jump))
    assert lab.one(now=107.0).died == 107.0


def test_a_process_of_an_older_version_is_watched_by_the_time_of_day(lab: Lab) -> None:
    lab.start(now=100.0)
    _beat(lab, "running", None)
    os.utime(lab.place() / "heartbeat", (lab.wall - 31, lab.wall - 31))
    assert lab.one(now=200.0).heartbeat == pytest.approx(169.0)


def test_the_dead_say_why_themselves_or_by_how_they_ended(lab: Lab) -> None:
    lab.start(1)
    lab.processes.signal(lab.place(1), signal.SIGKILL)
    assert (lab.one(1, now=7.0).reason, lab.one(1).died) == ("it was killed by SIGKILL", 7.0)
    lab.start(2)
    (lab.place(2) / "exit.json").write_text(json.dumps({"outcome": "failed", "reason": "no source"}))
    lab.processes.end(lab.place(2), code=1)
    assert (lab.one(2).outcome, lab.one(2).reason) == ("failed", "no source")


def test_one_that_was_killed_because_it_hung_is_said_to_have_hung(lab: Lab) -> None:
    lab.start(1)
    lab.instances.kill(lab.one(1), "hung: no heartbeat for 31 s")
    assert lab.one(1).reason == "hung: no heartbeat for 31 s"
    lab.instances.kill(lab.one(1), "it is dead already")
    lab.instances = lab.supervisor()
    assert lab.one(1).reason == "hung: no heartbeat for 31 s"


def test_a_start_that_fails_leaves_nothing_that_looks_like_a_process(lab: Lab) -> None:
    lab.processes.refuse("no more processes")
    with pytest.raises(ProcessError, match="no more processes"):
        lab.instances.start(Start(_assignment(), "driver", 1, "why"), 100.0)
    assert lab.instances.look(100.0) == []
    assert not lab.place().exists()


def test_deaths_are_counted_and_reasons_known_on_a_full_disk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.start()

    def full(path: Path, content: bytes | str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("penstock.daemon.worker_folder.write_private", full)
    lab.instances.kill(lab.one(), "hung: no heartbeat for 31 s")
    assert lab.one().reason == "hung: no heartbeat for 31 s"
    lab.instances.count(lab.one())
    assert lab.one().counted


def test_one_that_was_asked_to_end_on_a_full_disk_is_known_to_have_been(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.start()
    lab.processes.hang(lab.place())

    def full(path: Path, content: bytes | str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("penstock.daemon.worker_folder.write_private", full)
    lab.instances.ask_to_end(lab.one(), 170.0)
    lab.wall += 3600
    assert lab.one(now=171.0).asked_to_end == 170.0


def test_a_mark_of_an_older_version_says_when_by_the_time_of_day(lab: Lab) -> None:
    lab.start()
    write_private(lab.place() / "asked", "")
    os.utime(lab.place() / "asked", (lab.wall - 31, lab.wall - 31))
    assert lab.one(now=200.0).asked_to_end == pytest.approx(169.0)


_ODD = {
    "no object": "[1, 2]",
    "no JSON": '{"job": ',
    "nothing": "",
    "a field is missing": '{"job": "job", "role": "driver", "revision": 3, "attempt": 2}',
    "a field is of another type": '{"job": "job", "role": "driver", "revision": "3", "attempt": 2,'
    ' "generation": 1, "started": 1.0}',
    "the copy of another": '{"job": "job", "role": "driver", "revision": 3, "attempt": 1,'
    ' "generation": 1, "started": 1.0}',
}


@pytest.mark.parametrize("content", _ODD.values(), ids=_ODD)
def test_a_folder_that_cannot_be_read_is_left_alone_and_logged_once(lab: Lab, content: str) -> None:
    lab.start(1)
    lab.start(2)
    (lab.place(2) / "instance.json").write_text(content)
    lab.instances = lab.supervisor()
    with logged_events() as events:
        for _ in range(3):
            assert [one.attempt for one in lab.instances.look(100.0)] == [1]
        assert lab.instances.bundles() == {BUNDLE}
        lab.processes.end(lab.place(1))
        lab.instances.forget({"job": 9})
        lab.instances.forget_unknown(set(), 2e9)
    assert lab.instances.folders() == [lab.place(2)]
    assert lab.processes.alive(lab.place(2))
    [event] = events
    assert event["folder"] == str(lab.place(2))


def test_the_exit_code_of_a_process_goes_with_its_folder(lab: Lab) -> None:
    lab.start()
    lab.processes.end(lab.place(), code=1)
    assert lab.processes.exit_code(lab.place()) == 1
    lab.instances.forget({"job": 9})
    assert lab.instances.folders() == []
    assert lab.processes.exit_code(lab.place()) is None


def test_a_process_that_was_killed_by_a_signal_without_a_name_is_dead_like_others(lab: Lab) -> None:
    lab.start()
    lab.processes.end(lab.place(), code=-40)
    assert lab.one().reason == "it was killed by signal 40"


def test_an_executor_knows_how_many_before_it_have_failed(lab: Lab) -> None:
    driver = WorkerInfo("job", 3, 2, "n2", 1, "ready", 0.0, "spark://d", "app-7")
    slot = ExecutorSlot(4, "n1", 1, 1 << 30)
    lab.instances.start(Start(_assignment(), "executor-4", 5, "why", driver, slot, failures=4), 100.0)
    lab.instances = lab.supervisor()
    [executor] = lab.instances.look(100.0)
    assert (executor.failures, executor.size) == (4, (slot.cores, slot.memory))


def test_a_death_is_counted_once_even_by_another_supervisor(lab: Lab) -> None:
    lab.start()
    lab.processes.end(lab.place(), code=1)
    assert not lab.one().counted
    lab.instances.count(lab.one())
    assert lab.one().counted
    lab.instances = lab.supervisor()
    assert lab.one().counted


def test_asking_is_noted_and_killing_takes_the_family(lab: Lab) -> None:
    lab.start()
    lab.processes.hang(lab.place())
    lab.instances.ask_to_end(lab.one(), 170.0)
    assert lab.processes.processes[lab.place()].signals == [signal.SIGTERM]
    assert (lab.one().alive, lab.one().asked_to_end) == (True, 170.0)
    lab.processes.processes[lab.place()].relatives = 2
    lab.instances.kill(lab.one())
    assert not lab.one().alive
    assert lab.processes.processes[lab.place()].relatives == 0


def test_only_the_last_dead_of_a_place_keep_their_folders(lab: Lab) -> None:
    for attempt in range(1, 7):
        lab.start(attempt)
        if attempt < 6:
            lab.processes.end(lab.place(attempt), code=1)
    lab.instances.look(100.0)
    assert sorted(path.name for path in lab.instances.folders()) == [
        f"job-driver-000003-{attempt:04d}" for attempt in (3, 4, 5, 6)
    ]


def test_bundles_of_the_living_are_in_use(lab: Lab) -> None:
    lab.start()
    assert lab.instances.bundles() == {BUNDLE}
    lab.processes.end(lab.place())
    assert lab.instances.bundles() == set()


def test_code_that_is_not_to_be_trusted_starts_nothing(tmp_path: Path) -> None:
    def refuse(sha256: str) -> Path:
        raise RefusedStartError(f"bundle {sha256[:3]}: damaged")

    node = NodeSettings("n1", "127.0.0.2", tmp_path, tmp_path, tmp_path, "zk:1", "/penstock")
    instances = FolderInstances(node, FakeProcesses(), RING, refuse)
    with pytest.raises(RefusedStartError):
        instances.start(Start(_assignment(), "driver", 1, "why"), 0.0)
    assert instances.look(0.0) == []


def test_a_job_whose_data_is_with_its_node_has_a_home_there_that_nobody_else_can_read(lab: Lab) -> None:
    assignment = _assignment(data_location="node")
    lab.instances.start(Start(assignment, "driver", 1, "why"), 100.0)
    told = json.loads((lab.place() / "instance.json").read_text())
    place = lab.folder / "kept" / "job"
    assert told["storage"] == str(place / "home")
    assert told["snapshots"] == str(lab.folder / "snapshots")
    assert lab.processes.processes[lab.place()].environment["PENSTOCK_HOME"] == str(place / "home")
    assert place.stat().st_mode & 0o077 == 0
    assert not (place / "home").exists(), "who restores it makes it"


@pytest.mark.parametrize(("role", "process"), [("driver", "worker"), ("executor-1", "executor-1")])
def test_processes_are_told_where_what_user_code_prints_belongs(lab: Lab, role: str, process: str) -> None:
    driver = WorkerInfo("job", 3, 1, "n2", 1, "running", 90.0, "spark://x:1", "app")
    slot = ExecutorSlot(1, "n1", 1, 1 << 30)
    lab.instances.start(Start(_assignment(), role, 1, "why", driver=driver, slot=slot), 100.0)
    [(folder, started)] = lab.processes.processes.items()
    place = OutputPlace.of_environment(started.environment)
    assert place == OutputPlace(str(folder), "n1", "job", process)
    assert lab.instances.log_files() == [folder / "log.jsonl", folder / "user.jsonl"]


def test_how_much_of_it_is_kept_is_a_setting_of_the_node() -> None:
    assert read_output_limits({}) == OutputLimits(1_000, 16_000_000)
    given = {"PENSTOCK_OUTPUT_RATE": "20", "PENSTOCK_OUTPUT_SIZE": "1.5GB"}
    assert read_output_limits(given) == OutputLimits(20, 1_500_000_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_OUTPUT_RATE", "0"),
        ("PENSTOCK_OUTPUT_RATE", "many"),
        ("PENSTOCK_OUTPUT_RATE", "-1"),
        ("PENSTOCK_OUTPUT_SIZE", "large"),
        ("PENSTOCK_OUTPUT_SIZE", "10KB"),
    ],
)
def test_a_setting_that_is_none_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name):
        read_output_limits({name: value})


@pytest.mark.parametrize("name", ["PENSTOCK_SNAPSHOT_RATE", "PENSTOCK_JAVA_OPTIONS"])
def test_settings_of_the_node_are_passed_on(lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "something")
    lab.start()
    assert lab.processes.processes[lab.place()].environment[name] == "something"


def test_a_job_gets_the_variables_that_it_was_given(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "of this node")
    monkeypatch.setenv("OTHER", "not asked for")
    assignment = _assignment(env={"DB_PASSWORD": None, "REGION": "eu", "TZ": "UTC"})
    driver = WorkerInfo("job", 3, 1, "n2", 1, "ready", 0.0, "spark://d", "app-7")
    lab.instances.start(Start(assignment, "driver", 1, "why"), 100.0)
    slot = ExecutorSlot(4, "n1", 1, 1 << 30)
    lab.instances.start(Start(assignment, "executor-4", 1, "why", driver, slot), 100.0)
    for process in lab.processes.processes.values():
        environment = process.environment
        assert (environment["DB_PASSWORD"], environment["REGION"], environment["TZ"]) == (
            "of this node",
            "eu",
            "UTC",
        )
        assert "OTHER" not in environment


def test_a_job_that_wants_a_variable_that_its_node_lacks_is_not_started_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DB_PASSWORD", raising=False)
    with pytest.raises(FailedStartError, match="DB_PASSWORD from the environment of its node") as refused:
        lab.instances.start(Start(_assignment(env={"DB_PASSWORD": None}), "driver", 1, "why"), 100.0)
    assert "the supervisor of n1" in str(refused.value)
    assert not lab.instances.folders()


@pytest.mark.parametrize("job", ["../job", "/tmp/job", "a/b", "job~../1", "job~", "job~x", ""])
def test_a_job_whose_name_leads_out_of_its_folder_is_not_started(lab: Lab, job: str) -> None:
    with pytest.raises(RefusedStartError, match="no job can have this name"):
        lab.instances.start(Start(_assignment(job=job), "driver", 1, "why"), 100.0)
    assert lab.instances.folders() == []
    lab.instances.start(Start(_assignment(job="job~2"), "driver", 1, "why"), 100.0)


def test_the_progress_of_a_worker_is_in_its_heartbeat(lab: Lab) -> None:
    assert lab.start().progress == Progress()
    progress, joined = Progress(batches=7, at=99.0), ReplicaReport(6, 7)
    info = WorkerInfo("job", 3, 1, "n1", 7, "running", 90.0, progress=progress, joined=joined)
    write_heartbeat(lab.place(), info)
    found = lab.one()
    assert (found.phase, found.progress, found.joined) == ("running", progress, joined)
    (lab.place() / "heartbeat").write_text(json.dumps({"phase": "running", "progress": {"batches": "many"}}))
    os.utime(lab.place() / "heartbeat", (150, 150))
    assert (lab.one().phase, lab.one().progress) == ("running", Progress())
