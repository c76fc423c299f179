"""Real processes: who is found again by whom, what belongs to a family, what a pid alone does not prove."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.processes import process_launcher
from penstock.processes.process_control import MARK, OsProcesses
from support.waiting import eventually

SLEEP = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]

FAMILY = """
import os, subprocess, sys, signal
# A child of the same session, one in a session of its own, and one of those that has lost its parent.
sleep = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
near = subprocess.Popen(sleep)
far = subprocess.Popen(sleep, start_new_session=True)
lost = subprocess.run([sys.executable, "-I", "-S", "-c", f'''
import subprocess
print(subprocess.Popen({sleep!r}, start_new_session=True, stdout=subprocess.DEVNULL).pid)
'''], stdout=subprocess.PIPE).stdout
print(near.pid, far.pid, int(lost), flush=True)
signal.pause()
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def files_of(pid: int) -> dict[str, str]:
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found[path.name] = str(path.readlink())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "instance"
    OsProcesses().kill_all(tmp_path / "instance")


def start(processes: OsProcesses, folder: Path, argv: list[str]) -> int:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    return processes.start(argv, folder=folder, environment=environment, cwd=folder.parent).pid


def family_of(folder: Path) -> tuple[int, int, int]:
    eventually("the program is up", lambda: folder.joinpath("output.txt").read_text().endswith("\n"))
    near, far, lost = folder.joinpath("output.txt").read_text().split()
    return int(near), int(far), int(lost)


def test_a_process_is_started_apart_from_its_starter(folder: Path) -> None:
    pid = start(OsProcesses(), folder, SLEEP)
    assert os.getsid(pid) == pid
    process = psutil.Process(pid)
    assert process.cmdline() == SLEEP
    assert process.cwd() == str(folder.parent)
    output = folder / "output.txt"
    # While Python begins it opens and closes files of its own.
    eventually("its files", lambda: files_of(pid) == {"0": os.devnull, "1": str(output), "2": str(output)})
    assert process.environ()[MARK] == str(folder)


def test_the_record_says_who_it_is_and_is_for_its_owner_alone(folder: Path) -> None:
    pid = start(OsProcesses(), folder, SLEEP)
    record = json.loads(folder.joinpath("process.json").read_text())
    assert record["pid"] == pid
    assert record["created"] == psutil.Process(pid).create_time()
    assert record["argv0"] == SLEEP[0]
    assert abs(record["started"] - time.time()) < 120
    assert sorted(path.name for path in folder.iterdir()) == ["output.txt", "process.json"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


STARTER = """
import os, select, signal, sys
from pathlib import Path
from penstock.processes.process_control import OsProcesses
if sys.argv[2] == "in between":
    # The starter dies when its child is forked, before it has heard of it.
    select.select = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
processes = OsProcesses()  # Kept: who forgets a child reaps it.
processes.start(sys.argv[3:], folder=Path(sys.argv[1]), environment=dict(os.environ), cwd=Path("/"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["afterwards", "in between"])
def test_a_process_whose_starter_is_killed_is_found_by_another(folder: Path, moment: str) -> None:
    starter = subprocess.run([sys.executable, "-c", STARTER, folder, moment, *SLEEP], check=False)
    assert starter.returncode == -signal.SIGKILL
    processes = OsProcesses()
    eventually("the process is known", lambda: processes.alive(folder))
    found = processes.find(folder)
    assert found is not None
    eventually("the program runs", lambda: psutil.Process(found.pid).cmdline() == SLEEP)
    assert start(processes, folder, SLEEP) == found.pid
    assert processes.signal(folder, signal.SIGTERM)
    eventually("the process ends", lambda: not processes.alive(folder))
    assert processes.exit_code(folder) is None


def test_the_first_of_two_launchers_wins(folder: Path) -> None:
    pid = start(OsProcesses(), folder, SLEEP)
    ours, theirs = os.pipe()
    second = subprocess.run(
        [sys.executable, "-I", "-S", process_launcher.__file__, str(folder), str(theirs), "--", *SLEEP],
        pass_fds=(theirs,),
        check=False,
        timeout=120,
    )
    os.close(theirs)
    assert os.read(ours, 100).decode() == process_launcher.TAKEN
    os.close(ours)
    assert second.returncode == 127
    assert json.loads(folder.joinpath("process.json").read_text())["pid"] == pid


@pytest.mark.parametrize("change", [{"ticks": 1}, {"boot": "another"}, {"ticks": None, "created": 1.0}])
def test_a_pid_that_was_used_again_is_left_alone(
    folder: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    processes = OsProcesses()
    pid = start(processes, folder, SLEEP)
    other = tmp_path / "other"
    other.mkdir()
    record = json.loads(folder.joinpath("process.json").read_text())
    other.joinpath("process.json").write_text(json.dumps({**record, **change}))
    assert not processes.alive(other)
    assert not processes.signal(other, signal.SIGTERM)
    assert not processes.signal(other, signal.SIGTERM, family=True)
    assert processes.kill_all(other) == 0
    assert processes.figures(other) == (0.0, 0)
    assert processes.descriptor(other) is None
    assert not gone(pid)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"pid": "x", "created": 1.0}', '{"pid": 0, "created": 1.0}']
)
def test_a_record_that_cannot_be_read_is_none(folder: Path, content: str) -> None:
    folder.mkdir()
    folder.joinpath("process.json").write_text(content)
    processes = OsProcesses()
    assert not processes.alive(folder)
    assert processes.kill_all(folder) == 0


def test_a_zombie_does_not_live(folder: Path) -> None:
    # Its parent runs but never asks how it has ended.
    program = STARTER.replace("os.kill(os.getpid(), signal.SIGKILL)\n", "signal.pause()\n")
    holder = subprocess.Popen([sys.executable, "-c", program, folder, "afterwards", *SLEEP])
    try:
        processes = OsProcesses()
        eventually("the process is known", lambda: processes.alive(folder))
        processes.signal(folder, signal.SIGKILL)
        eventually("the process ends", lambda: not processes.alive(folder))
        record = json.loads(folder.joinpath("process.json").read_text())
        assert psutil.Process(record["pid"]).status() == psutil.STATUS_ZOMBIE
        assert not processes.signal(folder, signal.SIGTERM)
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize("head", ["lives", "is dead"])
def test_a_family_is_killed_with_those_in_other_sessions(folder: Path, head: str) -> None:
    processes = OsProcesses()
    pid = start(processes, folder, [sys.executable, "-c", FAMILY])
    near, far, lost = family_of(folder)
    if head == "is dead":
        os.kill(pid, signal.SIGKILL)
        eventually("the process ends", lambda: not processes.alive(folder))
        assert not any(gone(member) for member in (near, far, lost))
    assert processes.kill_all(folder) == (4 if head == "lives" else 3)
    assert all(gone(member) for member in (pid, near, far, lost))


def test_a_family_is_told_together(folder: Path) -> None:
    processes = OsProcesses()
    pid = start(processes, folder, [sys.executable, "-c", FAMILY])
    near, far, _ = family_of(folder)
    assert processes.signal(folder, signal.SIGTERM, family=True)
    eventually("the family ends", lambda: all(gone(member) for member in (near, far)))
    eventually("the process ends", lambda: not processes.alive(folder))
    assert processes.exit_code(folder) == -signal.SIGTERM, pid


NESTED = """
import os, signal, sys
from pathlib import Path
from penstock.processes.process_control import OsProcesses
OsProcesses().start(sys.argv[2:], folder=Path(sys.argv[1]), environment=dict(os.environ), cwd=Path("/"))
print("up", flush=True)
signal.pause()
"""


def test_a_process_with_a_folder_of_its_own_is_of_another_family(folder: Path, tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    processes = OsProcesses()
    try:
        start(processes, folder, [sys.executable, "-c", NESTED, str(worker), *SLEEP])
        eventually("the program is up", lambda: folder.joinpath("output.txt").read_text() == "up\n")
        assert processes.kill_all(folder) == 1
        assert processes.alive(worker)
    finally:
        assert processes.kill_all(worker) == 1


def test_figures_are_those_of_the_whole_family(folder: Path) -> None:
    burn = "while True: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {burn!r}])"
    processes = OsProcesses()
    start(processes, folder, [sys.executable, "-c", program])
    assert processes.figures(folder)[0] == 0.0
    measured: list[tuple[float, int]] = []

    def busy() -> bool:
        time.sleep(0.6)
        measured.append(processes.figures(folder))
        # The first of the two was busy itself until the other was there; and a busy machine is shared.
        return len(measured) > 2 and measured[-1][0] > 0.05

    eventually("the figures show work", busy)
    assert measured[-1][0] < 1.5
    assert 8 << 20 < measured[-1][1] < 200 << 20
    processes.kill_all(folder)
    time.sleep(0.6)
    assert processes.figures(folder) == (0.0, 0)


def test_a_descriptor_tells_of_the_end(folder: Path) -> None:
    processes = OsProcesses()
    start(processes, folder, SLEEP)
    descriptor = processes.descriptor(folder)
    assert descriptor is not None
    assert select.select([descriptor], [], [], 0)[0] == []
    processes.signal(folder, signal.SIGTERM)
    assert select.select([descriptor], [], [], 120)[0] == [descriptor]
    os.close(descriptor)
    assert not processes.alive(folder)


def test_where_there_are_no_descriptors_of_processes_pids_are_checked_and_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    processes = OsProcesses()
    pid = start(processes, folder, SLEEP)
    other = tmp_path / "other"
    other.mkdir()
    record = json.loads(folder.joinpath("process.json").read_text())
    other.joinpath("process.json").write_text(json.dumps({**record, "ticks": 1}))
    assert processes.kill_all(other) == 0
    assert processes.descriptor(folder) is None
    assert processes.signal(folder, signal.SIGCONT)
    assert not gone(pid)
    assert processes.kill_all(folder) == 1
    assert gone(pid)
