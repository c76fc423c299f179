"""Chooses the placement strategy of each job, and runs slow or user-defined ones outside of the master.

A user's strategy runs in a process without inherited secrets and with limited time and memory. It is asked
in the background: until it has answered its job waits, and no other job does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import penstock
from penstock.cluster.job_documents import JobSpec
from penstock.errors import PenstockError
from penstock.process_logs.process_log import get_logger
from penstock.schedule.custom_strategy import (
    CustomStrategy,
    CustomStrategyError,
    StrategyPendingError,
    StrategyProcessResult,
    is_custom,
)
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task
from penstock.schedule.placement_strategies import (
    DEFAULT_STRATEGY,
    Exact,
    Strategy,
    builtin_strategy,
    check_strategy_name,
)

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV")
"""The environment variables that a strategy sees; tokens and keys are not among them."""
_EXACT = f"{Exact.__module__}:{Exact.__name__}"
_MODULE = "penstock.schedule.custom_strategy_process"


@dataclass(frozen=True)
class StrategyProcess:
    """A runner for :mod:`penstock.schedule.custom_strategy`: call it with the input and the seconds that it
    may take.
    """

    folder: Path | None = None
    """The folder of the user's package, which is searched before installed packages."""
    memory: int = 4 << 30
    """Bytes of address space, at most."""
    answer: int = 16 << 20
    """The largest answer, in bytes; also the largest file that it may write."""

    def __call__(self, question: bytes, seconds: float) -> StrategyProcessResult:
        """Run it, and end all processes that it starts."""
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
    """Wait until a process ends, without reaping it, so that its id is not used again."""
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process with its process group, whose id is its pid."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _read(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)


_log = get_logger(__name__)

_SECONDS = 5.0
"""How long a user's strategy may take."""
_AT_ONCE = 4
_MOST_ANSWERS = 100


@dataclass
class _Answer:
    """The answer of a strategy, once there is one."""

    done: bool = False
    matrix: Matrix | None = None
    error: PenstockError | None = None


@dataclass
class StrategyAnswers:
    """The running questions, and the answers that were not fetched yet."""

    wake: Callable[[], None] = lambda: None
    """Called when there is an answer."""
    _answers: dict[tuple[object, ...], _Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self,
        about: tuple[object, ...],
        strategy: Strategy,
        snapshot: ClusterSnapshot,
        demands: tuple[Task, ...],
    ) -> Matrix:
        """Return or raise the answer of a strategy, or raise StrategyPendingError. An answer is given once.

        It may be some seconds old; the caller checks it against the current state of the cluster.
        """
        with self._lock:
            known = self._answers.get(about)
            if known is None:
                self._begin(about, strategy, snapshot, demands)
            if known is None or not known.done:
                raise StrategyPendingError(f"waiting for the answer of its strategy {about[0]!r}")
            del self._answers[about]
        if known.error is not None:
            raise known.error
        assert known.matrix is not None, "an answer is a matrix or an error"
        return known.matrix

    def _begin(
        self,
        about: tuple[object, ...],
        strategy: Strategy,
        snapshot: ClusterSnapshot,
        demands: tuple[Task, ...],
    ) -> None:
        if sum(not answer.done for answer in self._answers.values()) >= _AT_ONCE:
            return  # The caller asks again when one of them has answered.
        if len(self._answers) >= _MOST_ANSWERS:
            # Answers for jobs that have ended since are never fetched.
            self._answers = {key: answer for key, answer in self._answers.items() if not answer.done}
        answer = self._answers[about] = _Answer()
        arguments = (answer, strategy, snapshot, demands)
        threading.Thread(target=self._run, args=arguments, name="strategy", daemon=True).start()

    def _run(
        self, answer: _Answer, strategy: Strategy, snapshot: ClusterSnapshot, demands: tuple[Task, ...]
    ) -> None:
        try:
            answer.matrix = strategy.place(snapshot, demands)
        except PenstockError as error:
            answer.error = error
        except Exception as error:  # Any error is an answer: the caller must not wait for ever.
            _log.exception("strategy could not be asked")
            answer.error = PenstockError(f"it could not be run: {error}")
        with self._lock:
            answer.done = True
        self.wake()


@dataclass(frozen=True)
class BackgroundStrategy:
    """A strategy that runs in the background."""

    name: str
    bundle: str
    strategy: Strategy
    asked: StrategyAnswers

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        """Return the answer of the strategy. Raises StrategyPendingError until there is one."""
        # An answer for other nodes does not answer this question.
        nodes = tuple(sorted(node.name for node in snapshot.nodes))
        about = (self.name, self.bundle, tuple(task.id for task in demands), nodes)
        return self.asked.ask(about, self.strategy, snapshot, demands)


class _Missing:
    """Takes the place of a strategy whose code cannot be loaded."""

    def __init__(self, name: str, reason: str) -> None:
        self._error = CustomStrategyError(name, "name", reason)

    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:  # noqa: ARG002
        raise self._error


class StrategyChooser:
    """Chooses for :class:`penstock.schedule.job_placer.JobPlacer`."""

    def __init__(
        self,
        default: str = DEFAULT_STRATEGY,
        unpacked: Callable[[str], Path] | None = None,
        *,
        asked: StrategyAnswers | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        """``default`` is the cluster's; ``unpacked`` returns the folder of a bundle's code.

        Raises UnknownStrategyError for a default that there is not.
        """
        self.default = check_strategy_name(default)
        self.asked = asked or StrategyAnswers()
        self._unpacked = unpacked
        self._seconds = seconds

    def __call__(self, spec: JobSpec) -> tuple[str, Strategy]:
        """Return the strategy that decides about a job, and its name."""
        name = spec.settings.placement.strategy or self.default
        if name != "exact" and not is_custom(name):
            return name, builtin_strategy(name)
        folder = None
        if is_custom(spec.settings.placement.strategy):
            try:
                folder = self._unpacked(spec.bundle) if self._unpacked else None
            except PenstockError as error:
                return name, _Missing(name, f"its code is not available: {error}")
        strategy = strategy_named(name, folder, self._seconds)
        return name, BackgroundStrategy(name, spec.bundle, strategy, self.asked)
