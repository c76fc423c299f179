"""What a supervisor may expect of processes, real ones and those in memory alike."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from penstock.processes.process_control import OsProcesses, ProcessError, Processes
from penstock.testing.fake_processes import FakeProcesses
from support.waiting import eventually

WAITING = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
print("up", flush=True)
while True:
    signal.pause()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING


class Bench(Protocol):
    """An implementation, and how a test moves its processes."""

    processes: Processes

    def start(self, folder: Path, *, stubborn: bool = False) -> int: ...

    def let_end(self, folder: Path) -> None:
        """Have the process end by itself, with code 3."""


class OsBench:
    def __init__(self) -> None:
        self.processes: Processes = OsProcesses()

    def start(self, folder: Path, *, stubborn: bool = False) -> int:
        program = [sys.executable, "-I", "-S", "-c", STUBBORN if stubborn else WAITING]
        found = self.processes.start(program, folder=folder, environment=dict(os.environ), cwd=Path("/"))
        eventually("the program is up", lambda: folder.joinpath("output.txt").read_text().startswith("up"))
        return found.pid

    def let_end(self, folder: Path) -> None:
        self.processes.signal(folder, signal.SIGUSR1)


class MemoryBench:
    def __init__(self) -> None:
        self._fake = FakeProcesses()
        self.processes: Processes = self._fake

    def start(self, folder: Path, *, stubborn: bool = False) -> int:
        found = self.processes.start(["worker"], folder=folder, environment={}, cwd=Path("/"))
        if stubborn:
            self._fake.hang(folder)
        return found.pid

    def let_end(self, folder: Path) -> None:
        self._fake.end(folder, 3)


@pytest.fixture(params=[OsBench, MemoryBench])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    found: Bench = request.param()
    yield found
    for folder in (tmp_path / "a", tmp_path / "b"):
        found.processes.kill_all(folder)


def test_a_process_lives_until_it_ends_by_itself(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    pid = bench.start(folder)
    found = bench.processes.find(folder)
    assert found is not None
    assert found.pid == pid
    assert bench.processes.alive(folder)
    assert bench.processes.exit_code(folder) is None
    bench.let_end(folder)
    eventually("the process ends", lambda: not bench.processes.alive(folder))
    assert bench.processes.find(folder) is None
    assert bench.processes.exit_code(folder) == 3


def test_a_folder_nobody_used_has_no_process(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    assert bench.processes.find(folder) is None
    assert bench.processes.exit_code(folder) is None
    assert not bench.processes.signal(folder, signal.SIGTERM)
    assert not bench.processes.signal(folder, signal.SIGTERM, family=True)
    assert bench.processes.kill_all(folder) == 0
    assert bench.processes.figures(folder) == (0.0, 0)


def test_nothing_is_kept_of_a_process_that_was_forgotten(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    bench.start(folder)
    bench.processes.forget(folder)
    assert bench.processes.alive(folder), "one that lives is not forgotten"
    bench.let_end(folder)
    eventually("the process ends", lambda: not bench.processes.alive(folder))
    assert bench.processes.exit_code(folder) == 3
    bench.processes.forget(folder)
    assert bench.processes.exit_code(folder) is None


def test_a_folder_has_one_living_process_at_most(bench: Bench, tmp_path: Path) -> None:
    first = bench.start(tmp_path / "a")
    assert bench.start(tmp_path / "a") == first
    assert bench.start(tmp_path / "b") != first


def test_a_folder_may_be_used_again(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    first = bench.start(folder)
    bench.let_end(folder)
    eventually("the process ends", lambda: not bench.processes.alive(folder))
    assert bench.start(folder) != first
    assert bench.processes.alive(folder)
    assert bench.processes.exit_code(folder) is None


def test_a_signal_ends_a_process_and_its_number_is_told(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    bench.start(folder)
    assert bench.processes.signal(folder, signal.SIGTERM)
    eventually("the process ends", lambda: not bench.processes.alive(folder))
    assert bench.processes.exit_code(folder) == -signal.SIGTERM
    assert not bench.processes.signal(folder, signal.SIGTERM)


def test_who_ignores_a_wish_can_be_killed(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    bench.start(folder, stubborn=True)
    assert bench.processes.signal(folder, signal.SIGTERM, family=True)
    assert bench.processes.alive(folder)
    assert bench.processes.kill_all(folder) == 1
    assert not bench.processes.alive(folder)
    assert bench.processes.exit_code(folder) == -signal.SIGKILL
    assert bench.processes.kill_all(folder) == 0


def test_a_paused_process_lives(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    bench.start(folder)
    assert bench.processes.signal(folder, signal.SIGSTOP)
    assert bench.processes.alive(folder)
    assert bench.processes.signal(folder, signal.SIGCONT)
    assert bench.processes.alive(folder)


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    fake = FakeProcesses()
    fake.refuse("no such program")
    for processes in (fake, OsProcesses()):
        with pytest.raises(ProcessError, match=r"/no/such/program.*[Nn]o such"):
            processes.start(["/no/such/program"], folder=tmp_path / "a", environment={}, cwd=Path("/"))
        assert not processes.alive(tmp_path / "a")
