"""Fake processes for unit tests and simulations, which can end or hang them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.processes.process_control import ProcessError, ProcessId


@dataclass
class FakeProcess:
    """A fake process and its state."""

    id: ProcessId
    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: Path
    running: bool = True
    hung: bool = False
    """Whether it ignores every signal but SIGKILL."""
    paused: bool = False
    code: int | None = None
    signals: list[int] = field(default_factory=list)
    relatives: int = 0
    """The number of processes that it has started and that may outlive it."""
    cpu: float = 0.0
    memory: int = 0


class FakeProcesses:
    """Implements :class:`penstock.processes.process_control.Processes` for one machine.

    An instance represents a machine: pass the same one to a restarted supervisor, after
    :meth:`forget_children`. It uses no files and no clock but ``now``, which gives the start times.

    >>> from pathlib import Path
    >>> machine, folder = FakeProcesses(), Path("/instances/wordcount")
    >>> _ = machine.start(["worker"], folder=folder, environment={}, cwd=Path("/"))
    >>> machine.end(folder, code=1)
    >>> machine.alive(folder), machine.exit_code(folder)
    (False, 1)
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._next_pid = 1000
        self._own: set[Path] = set()
        self._refusal = ""
        self.processes: dict[Path, FakeProcess] = {}
        self.started: list[Path] = []
        """The folder of each start, in order."""

    def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], cwd: Path
    ) -> ProcessId:
        if (living := self.find(folder)) is not None:
            return living
        if self._refusal:
            raise ProcessError(f"cannot start {argv[0]}: {self._refusal}")
        self._next_pid += 1
        started = self._now()
        found = ProcessId(self._next_pid, created=started, argv0=argv[0], started=started)
        self.processes[folder] = FakeProcess(found, tuple(argv), dict(environment), cwd)
        self._own.add(folder)
        self.started.append(folder)
        return found

    def find(self, folder: Path) -> ProcessId | None:
        process = self.processes.get(folder)
        return process.id if process is not None and process.running else None

    def alive(self, folder: Path) -> bool:
        return self.find(folder) is not None

    def exit_code(self, folder: Path) -> int | None:
        return self.processes[folder].code if folder in self._own else None

    def signal(self, folder: Path, number: int, *, family: bool = False) -> bool:
        process = self.processes.get(folder)
        if process is None or not (process.running or (family and process.relatives)):
            return False
        process.signals.append(number)
        if number == signal.SIGKILL:
            self._end(process, -number)
            process.relatives = 0 if family else process.relatives
        elif number in (signal.SIGSTOP, signal.SIGCONT):
            process.paused = number == signal.SIGSTOP
        elif number in (signal.SIGTERM, signal.SIGINT) and not process.hung and not process.paused:
            self._end(process, -number)
        return True

    def kill_all(self, folder: Path) -> int:
        process = self.processes.get(folder)
        if process is None:
            return 0
        killed = int(process.running) + process.relatives
        process.relatives = 0
        self._end(process, -signal.SIGKILL)
        return killed

    def figures(self, folder: Path) -> tuple[float, int]:
        process = self.processes.get(folder)
        if process is None or not (process.running or process.relatives):
            return 0.0, 0
        return process.cpu, process.memory

    def below(self, folder: Path) -> list[Path]:
        known = sorted(self.processes.items())
        living = [path for path, process in known if process.running or process.relatives]
        return [path for path in living if folder in path.parents]

    def forget(self, folder: Path) -> None:
        if not self.alive(folder):
            self._own.discard(folder)

    def end(self, folder: Path, code: int = 0) -> None:
        """End a process as if it had exited by itself."""
        self._end(self.processes[folder], code)

    def hang(self, folder: Path) -> None:
        """Make a process ignore all signals but SIGKILL from now on."""
        self.processes[folder].hung = True

    def refuse(self, reason: str) -> None:
        """Make every start fail with a reason; an empty reason makes starts succeed again."""
        self._refusal = reason

    def forget_children(self) -> None:
        """Simulate the death of the supervisor: its successor is not the parent of these processes."""
        self._own.clear()

    def crash_machine(self) -> None:
        """Simulate a crash of the machine, which ends all its processes."""
        for process in self.processes.values():
            process.relatives = 0
            self._end(process, -signal.SIGKILL)
        self._own.clear()

    def _end(self, process: FakeProcess, code: int) -> None:
        if process.running:
            process.running = False
            process.code = code
