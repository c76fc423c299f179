"""Processes in memory: what only tests do to them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from penstock.processes.process_control import ProcessError
from penstock.testing.fake_processes import FakeProcesses

FOLDER = Path("/instances/wordcount-driver-1-1")


def started(machine: FakeProcesses) -> None:
    machine.start(["worker"], folder=FOLDER, environment={"A": "b"}, cwd=Path("/"))


def test_who_comes_after_does_not_know_how_a_process_ended() -> None:
    machine = FakeProcesses()
    started(machine)
    machine.forget_children()
    assert machine.alive(FOLDER)
    machine.end(FOLDER, 1)
    assert not machine.alive(FOLDER)
    assert machine.exit_code(FOLDER) is None


def test_relatives_outlive_the_head_of_the_family() -> None:
    machine = FakeProcesses()
    started(machine)
    machine.processes[FOLDER].relatives = 2
    machine.processes[FOLDER].memory = 7
    machine.end(FOLDER, -9)
    assert machine.figures(FOLDER) == (0.0, 7)
    assert machine.kill_all(FOLDER) == 2
    assert machine.figures(FOLDER) == (0.0, 0)


def test_a_paused_process_hears_a_wish_no_more() -> None:
    machine = FakeProcesses()
    started(machine)
    machine.signal(FOLDER, signal.SIGSTOP)
    machine.signal(FOLDER, signal.SIGTERM)
    assert machine.alive(FOLDER)
    machine.signal(FOLDER, signal.SIGKILL)
    assert not machine.alive(FOLDER)


def test_a_machine_that_crashes_takes_everything_with_it() -> None:
    machine = FakeProcesses()
    started(machine)
    machine.crash_machine()
    assert not machine.alive(FOLDER)
    assert machine.exit_code(FOLDER) is None
    started(machine)
    assert machine.started == [FOLDER, FOLDER]


def test_starts_can_be_refused_for_a_while() -> None:
    machine = FakeProcesses()
    machine.refuse("out of memory")
    with pytest.raises(ProcessError, match="out of memory"):
        started(machine)
    machine.refuse("")
    started(machine)
    assert machine.processes[FOLDER].environment == {"A": "b"}
