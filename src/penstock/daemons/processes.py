"""What a supervisor needs of the operating system: processes that outlive it, each with a folder.

A folder belongs to one process at a time and names it. The process is the leader of a session of its own;
its *family* is that session, what descends from it, and what carries its mark in the environment: Spark's
Java and Python processes are in it. No method ever touches a process that merely has a pid which was used
before. ``processes_os`` has them for a real machine, ``processes_memory`` for tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.errors import PenstockError

MARK = "PENSTOCK_INSTANCE"
"""The environment variable that holds the folder of the process at the head of a family."""
OUTPUT = "output.txt"


class ProcessError(PenstockError):
    """A process cannot be started."""


@dataclass(frozen=True)
class ProcessId:
    """One process, for ever: a pid is used again, a pid with the moment of its beginning is not."""

    pid: int
    created: float
    """Seconds since 1970."""
    argv0: str = ""
    started: float = 0.0
    """When the program began, seconds since 1970."""
    ticks: int | None = None
    """When the process began, counted since the machine did; this holds even if the clock is set."""
    boot: str = ""
    """Which run of the machine that was."""


class Processes(Protocol):
    """The processes of one machine. Methods may be called from one thread at a time."""

    def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], cwd: Path
    ) -> ProcessId:
        """Start a program, with exactly this environment and the mark. Raises ProcessError.

        What it prints is added to ``output.txt`` in the folder. If the folder has a living process, that
        one is returned and nothing is started.
        """
        ...

    def find(self, folder: Path) -> ProcessId | None:
        """Return the living process of a folder, whoever started it; None when there is none."""
        ...

    def alive(self, folder: Path) -> bool:
        """Whether the process of a folder runs. A zombie does not."""
        ...

    def exit_code(self, folder: Path) -> int | None:
        """How the process of a folder ended, negative for a signal; None when it runs or nobody knows.

        It is known only to the one who started it.
        """
        ...

    def signal(self, folder: Path, number: int, *, family: bool = False) -> bool:
        """Send a signal to the process, or to its family; False when there was nobody to send it to."""
        ...

    def kill_all(self, folder: Path) -> int:
        """Kill the family, even if its head is dead; return how many that were, once they are gone."""
        ...

    def figures(self, folder: Path) -> tuple[float, int]:
        """Return cores in use since the last call, and resident bytes, of the whole family."""
        ...

    def below(self, folder: Path) -> list[Path]:
        """Return the folders, of those below one, whose families have a living member, in order."""
        ...
