"""Pauses processes of tests (SIGSTOP)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from support.waiting import eventually


def pause(pid: int) -> None:
    """Stop a process and wait until each of its threads stands.

    The signal returns at once, but a thread that runs on another processor goes on until it next enters the
    kernel: a server may answer one more request.
    """
    os.kill(pid, signal.SIGSTOP)
    eventually(f"process {pid} stands", lambda: all(state == "T" for state in _thread_states(pid)))


def _thread_states(pid: int) -> list[str]:
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states
