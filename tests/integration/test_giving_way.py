"""A worker that gives way, with what it has started, and is as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.processes.process_priority import ProcessPriority, can_restore_priority
from support.waiting import eventually

CHILD = """
import threading, time
thread = threading.Thread(target=input)
thread.start()
print("up", flush=True)
thread.join()
"""


@pytest.mark.skipif(
    not can_restore_priority(os.getpriority(os.PRIO_PROCESS, 0)), reason="not allowed to here"
)
def test_what_is_started_meanwhile_gives_way_and_is_as_usual_afterwards() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    giving = ProcessPriority()
    giving.lower()
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert all(nice > usual for nice in _priorities(child.pid))
        giving.restore()
        assert _priorities(child.pid) == [usual, usual]
        assert os.getpriority(os.PRIO_PROCESS, 0) == usual
    finally:
        giving.restore()
        child.communicate(b"\n")


@pytest.mark.skipif(
    not can_restore_priority(os.getpriority(os.PRIO_PROCESS, 0)), reason="not allowed to here"
)
def test_who_takes_long_has_the_usual_priority_before_it_is_ready() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    giving = ProcessPriority()
    giving.lower(0.0)
    try:
        eventually("the usual priority", lambda: os.getpriority(os.PRIO_PROCESS, 0) == usual)
    finally:
        giving.restore()


def _priorities(pid: int) -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]


def test_who_could_not_go_back_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.processes.process_priority.can_restore_priority", lambda usual: False)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    giving = ProcessPriority()
    giving.lower()
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual
    giving.restore()
