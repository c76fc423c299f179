"""Starts, finds, signals, measures and kills processes that outlive the process that started them.

Each process is identified by a folder. It leads its own session; its *family* is that session, all
descendants, and every process with its mark in the environment, such as Spark's Java and Python processes. A
pid is used only together with the start time of its process, so a reused pid is never signalled.
:class:`Processes` is the interface, :class:`OsProcesses` the implementation;
:mod:`penstock.testing.fake_processes` has one for tests.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from penstock.errors import PenstockError
from penstock.processes import process_launcher
from penstock.processes.process_table import ProcessEntry, ProcessTable, descendants, read_entry, read_table

MARK = "PENSTOCK_INSTANCE"
"""The environment variable with the folder of the process that heads a family."""
OUTPUT = "output.txt"


class ProcessError(PenstockError):
    """A process cannot be started."""


@dataclass(frozen=True)
class ProcessId:
    """Identifies a process permanently, by its pid and start time: a pid alone can be reused."""

    pid: int
    created: float
    """When the process was created, in seconds since 1970."""
    argv0: str = ""
    started: float = 0.0
    """When the program was started, in seconds since 1970."""
    ticks: int | None = None
    """When the process was created, in clock ticks since boot; not affected by changes of the clock."""
    boot: str = ""
    """The boot id of the machine at that time."""


class Processes(Protocol):
    """The processes of one machine. Only one thread may call methods at a time."""

    def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], cwd: Path
    ) -> ProcessId:
        """Start a program with exactly this environment and the mark. Raises ProcessError.

        Its output is appended to ``output.txt`` in the folder. If the folder already has a running process,
        that process is returned and nothing is started.
        """
        ...

    def find(self, folder: Path) -> ProcessId | None:
        """Return the running process of a folder, regardless of who started it; None if there is none."""
        ...

    def alive(self, folder: Path) -> bool:
        """Return whether the process of a folder is running. A zombie is not."""
        ...

    def exit_code(self, folder: Path) -> int | None:
        """Return the exit code of a folder's process, negative for a signal; None if running or unknown.

        Only the process that started it knows the exit code.
        """
        ...

    def signal(self, folder: Path, number: int, *, family: bool = False) -> bool:
        """Send a signal to the process, or to its family; return False if no process received it."""
        ...

    def kill_all(self, folder: Path) -> int:
        """Kill the family, even if its head is dead; wait for its end and return the number of processes."""
        ...

    def figures(self, folder: Path) -> tuple[float, int]:
        """Return the cores used since the last call and the resident bytes of the whole family."""
        ...

    def below(self, folder: Path) -> list[Path]:
        """Return the folders below the given one whose families have a running member, sorted."""
        ...

    def forget(self, folder: Path) -> None:
        """Drop the cached exit code and usage of a folder whose process has ended."""
        ...


_START_SECONDS = 20.0
_KILL_SECONDS = 5.0
_KILL_ROUNDS = 5
_TABLE_SECONDS = 0.5
_POLL_SECONDS = 0.01


@dataclass
class _Usage:
    """The processor time of a family's processes at a moment."""

    at: float
    cpu: dict[tuple[int, int], float]


class OsProcesses:
    """Implements :class:`penstock.processes.process_control.Processes`."""

    def __init__(self) -> None:
        self._boot = process_launcher.boot()
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._codes: dict[Path, int] = {}
        self._usage: dict[Path, _Usage] = {}
        self._table: tuple[float, ProcessTable] = (float("-inf"), {})

    def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], cwd: Path
    ) -> ProcessId:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (living := self.find(folder)) is not None:
            return living
        # Remove the record of an ended process, so that it is not taken for the new one's.
        folder.joinpath(process_launcher.RECORD).unlink(missing_ok=True)
        self._forget(folder)
        child, failure = _launch(argv, folder, {**environment, MARK: str(folder)}, cwd)
        self._children[folder] = child
        found = self._recorded(folder)
        if failure and failure != process_launcher.TAKEN:
            child.wait()
            raise ProcessError(f"cannot start {failure}")
        if found is None:
            raise ProcessError(
                f"cannot start {argv[0]}: its launcher ended before it started the program;"
                f" see {folder / OUTPUT}"
            )
        if found.pid != child.pid:  # A launcher started by a process that has died since was first.
            child.wait()
            del self._children[folder]
        return found

    def find(self, folder: Path) -> ProcessId | None:
        self._reap(folder)
        found = self._recorded(folder)
        if found is None:
            return None
        child = self._children.get(folder)
        # The main thread of a child may have ended while its other threads are still ending.
        own = child is not None and child.pid == found.pid
        return found if own or self._is_alive(found) else None

    def alive(self, folder: Path) -> bool:
        return self.find(folder) is not None

    def exit_code(self, folder: Path) -> int | None:
        self._reap(folder)
        return self._codes.get(folder)

    def signal(self, folder: Path, number: int, *, family: bool = False) -> bool:
        found = self._recorded(folder)
        if found is None:
            return False
        if family:
            members = self._family(folder, found, read_table())
            return sum(_send(entry, number) for entry in members) > 0
        entry = self._entry(found)
        return entry is not None and not entry.zombie and _send(entry, number)

    def kill_all(self, folder: Path) -> int:
        found = self._recorded(folder)
        killed: set[tuple[int, int]] = set()
        # A killed process may have started another one a moment before.
        for _ in range(_KILL_ROUNDS):
            table = read_table()
            members = [] if found is None else self._family(folder, found, table)
            members += _marked(folder, table, {entry.pid for entry in members})
            if not members:
                break
            killed.update((entry.pid, entry.ticks) for entry in members if _kill(entry))
            self._reap(folder)
            _wait_gone(members, _KILL_SECONDS)
            self._reap(folder)
        self._usage.pop(folder, None)
        return len(killed)

    def figures(self, folder: Path) -> tuple[float, int]:
        found = self._recorded(folder)
        members = [] if found is None else self._family(folder, found, self._recent_table())
        now = self._table[0]
        cpu = {(entry.pid, entry.ticks): entry.cpu for entry in members}
        before = self._usage.get(folder)
        memory = sum(entry.memory for entry in members)
        if before is None or before.at >= now:
            self._usage.setdefault(folder, _Usage(now, cpu))
            return 0.0, memory
        self._usage[folder] = _Usage(now, cpu)
        used = sum(seconds - before.cpu.get(name, 0.0) for name, seconds in cpu.items())
        return max(0.0, used) / (now - before.at), memory

    def below(self, folder: Path) -> list[Path]:
        living = [pid for pid, entry in read_table().items() if not entry.zombie and pid != os.getpid()]
        marks = {Path(mark) for pid in living if (mark := _mark_of(pid)) is not None}
        return sorted(path for path in marks if folder in path.parents)

    def descriptor(self, folder: Path) -> int | None:
        """Open a pidfd, which becomes readable when the process ends; the caller closes it.

        None when there is no such process, or when the system has no pidfds.
        """
        found = self.find(folder)
        entry = None if found is None else self._entry(found)
        return None if entry is None else _open(entry)

    def forget(self, folder: Path) -> None:
        """Drop the cached exit code and usage of a folder whose process has ended."""
        self._reap(folder)
        if folder not in self._children:
            self._forget(folder)

    def _forget(self, folder: Path) -> None:
        self._children.pop(folder, None)
        self._codes.pop(folder, None)
        self._usage.pop(folder, None)

    def _reap(self, folder: Path) -> None:
        child = self._children.get(folder)
        if child is not None and (code := child.poll()) is not None:
            self._codes[folder] = code
            del self._children[folder]

    def _recorded(self, folder: Path) -> ProcessId | None:
        return read_record(folder / process_launcher.RECORD)

    def _is_alive(self, process: ProcessId) -> bool:
        entry = self._entry(process)
        return entry is not None and not entry.zombie

    def _entry(self, process: ProcessId) -> ProcessEntry | None:
        entry = read_entry(process.pid)
        return entry if entry is not None and self._same(entry, process) else None

    def _same(self, entry: ProcessEntry, process: ProcessId) -> bool:
        if process.ticks is not None:
            return entry.ticks == process.ticks and self._boot == process.boot
        # On systems without ticks, compare the creation time reported by psutil.
        return abs(entry.ticks / os.sysconf("SC_CLK_TCK") - process.created) < 2.0

    def _family(self, folder: Path, head: ProcessId, table: ProcessTable) -> list[ProcessEntry]:
        """Return the family of a process sorted by pid, without zombies."""
        if head.boot != self._boot:
            return []
        entry = table.get(head.pid)
        if entry is not None and not self._same(entry, head):
            return []  # The pid was reused, so no process of that session is left.
        session = {entry.pid for entry in table.values() if entry.session == head.pid}
        others = [pid for pid in descendants(table, session) if _mark_of(pid) in (None, str(folder))]
        members = [table[pid] for pid in sorted({*session, *others})]
        return [entry for entry in members if not entry.zombie]

    def _recent_table(self) -> ProcessTable:
        now = time.monotonic()
        if now - self._table[0] >= _TABLE_SECONDS:
            self._table = (now, read_table())
        return self._table[1]


def read_record(path: Path) -> ProcessId | None:
    """Read ``process.json``; None when it is missing or not valid."""
    try:
        content = json.loads(path.read_bytes())
        known = {field.name: content[field.name] for field in fields(ProcessId) if field.name in content}
        found = ProcessId(**known)
        return found if found.pid > 0 else None
    except (OSError, ValueError, TypeError):
        return None


def _launch(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str], cwd: Path
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the launcher and wait until it executes the program; return the child and any error."""
    ours, theirs = os.pipe()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        output = os.open(folder / OUTPUT, flags, 0o600)
        try:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    process_launcher.__file__,
                    str(folder),
                    str(theirs),
                    "--",
                    *argv,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=dict(environment),
                pass_fds=(theirs,),
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessError(f"cannot start {argv[0]}: {error}") from error
        finally:
            os.close(output)
            os.close(theirs)
        readable, _, _ = select.select([ours], [], [], _START_SECONDS)
        if not readable:
            child.kill()
            return child, f"{argv[0]}: it did not start within {_START_SECONDS:g} seconds"
        return child, os.read(ours, 4096).decode(errors="replace")
    finally:
        os.close(ours)


def _mark_of(pid: int) -> str | None:
    """Return the mark of a process; None if it has none or its environment cannot be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    found = next((item for item in environment.split(b"\0") if item.startswith(prefix)), None)
    return None if found is None else os.fsdecode(found[len(prefix) :])


def _marked(folder: Path, table: ProcessTable, known: set[int]) -> list[ProcessEntry]:
    """Return processes with the mark of a folder that have left the session and whose parents are dead."""
    others = (entry for pid, entry in sorted(table.items()) if pid not in known and not entry.zombie)
    return [entry for entry in others if entry.pid != os.getpid() and _mark_of(entry.pid) == str(folder)]


def _open(entry: ProcessEntry) -> int | None:
    """Open a pidfd of exactly this process; None when it has ended, or the system has no pidfds."""
    try:
        descriptor = os.pidfd_open(entry.pid)
    except (OSError, AttributeError):
        return None
    # The descriptor refers to the process that has the pid now: check that it is the right one.
    if _exists(entry):
        return descriptor
    os.close(descriptor)
    return None


def _exists(entry: ProcessEntry) -> bool:
    now = read_entry(entry.pid)
    return now is not None and now.ticks == entry.ticks


def _send(entry: ProcessEntry, number: int) -> bool:
    """Send a signal to exactly this process."""
    descriptor = _open(entry)
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif _exists(entry):  # Some containers, and macOS, have no pidfds.
            os.kill(entry.pid, number)
        else:
            return False
    except OSError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def _kill(entry: ProcessEntry) -> bool:
    return _send(entry, signal.SIGKILL)


def _wait_gone(entries: Iterable[ProcessEntry], seconds: float) -> None:
    """Wait until processes have ended, possibly as zombies."""
    deadline = time.monotonic() + seconds
    for entry in entries:
        while time.monotonic() < deadline:
            now = read_entry(entry.pid)
            if now is None or now.ticks != entry.ticks or now.zombie:
                break
            descriptor = _open(entry)
            if descriptor is None:
                time.sleep(_POLL_SECONDS)
                continue
            select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            os.close(descriptor)
