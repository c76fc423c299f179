"""Runs a user's placement strategy as a process of its own: no inherited secrets, limited time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import penstock
from penstock.schedule.custom import CustomStrategy, StrategyProcessResult, is_custom
from penstock.schedule.strategies import Strategy, builtin_strategy
from penstock.schedule.strategies.exact import Exact

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV")
"""What a strategy sees of the environment: tokens and keys are not among it."""
_EXACT = f"{Exact.__module__}:{Exact.__name__}"
_MODULE = "penstock.schedule.custom_process"


@dataclass(frozen=True)
class StrategyProcess:
    """A runner for ``schedule.custom``: call it with the input and the seconds that it may take."""

    folder: Path | None = None
    """Where the user's package is; looked at before everything installed."""
    memory: int = 4 << 30
    """Bytes of address space, at most."""
    answer: int = 16 << 20
    """Bytes of an answer, at most; also of what may be written to any file."""

    def __call__(self, question: bytes, seconds: float) -> StrategyProcessResult:
        """Run it; what it starts ends with it."""
        limits = [str(self.memory), str(self.answer)]
        argv = [sys.executable, "-P", "-m", _MODULE, *limits, *([str(self.folder)] if self.folder else [])]
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PYTHONPATH"] = str(Path(penstock.__file__).resolve().parents[1])
        with (
            tempfile.TemporaryFile() as asked,
            tempfile.TemporaryFile() as said,
            tempfile.TemporaryFile() as told,
        ):
            asked.write(question)
            asked.seek(0)
            process = subprocess.Popen(
                argv,
                stdin=asked,
                stdout=said,
                stderr=told,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
            try:
                in_time = _has_ended(process.pid, seconds)
            finally:
                code = _end(process)
            errors = _read(told, self.answer).decode(errors="replace")
            return StrategyProcessResult(code if in_time else None, _read(said, self.answer), errors)


def strategy_named(name: str, folder: Path | None = None, seconds: float = 5.0) -> Strategy:
    """Return a strategy by its name: one of Penstock's, or ``module:Class`` of the user's.

    The exact one runs in a process, too: a master must not load a solver, whose memory it would keep.
    """
    if name == "exact":
        return CustomStrategy(_EXACT, StrategyProcess(), Exact().seconds + seconds)
    if is_custom(name):
        return CustomStrategy(name, StrategyProcess(folder), seconds)
    return builtin_strategy(name)


def _has_ended(pid: int, seconds: float) -> bool:
    """Wait until a process ends, and leave it unreaped: as long as it is, its id belongs to nobody else."""
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process and what it started, as long as that is in its group, whose id is its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _read(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)
