"""A snapshot of all processes of this machine, with their parents and sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process."""

    pid: int
    parent: int
    session: int
    ticks: int
    """When it was created, in clock ticks since boot; identifies the process together with the pid."""
    zombie: bool
    cpu: float
    """Seconds of processor time used so far."""
    memory: int
    """Resident bytes."""


ProcessTable = dict[int, ProcessEntry]


def read_table() -> ProcessTable:
    """Read all processes: one small file each, about 15 µs."""
    if not _PROC.joinpath("self", "stat").exists():
        return _read_portably()
    table = {}
    for name in os.listdir(_PROC):
        if name.isdigit():
            entry = read_entry(int(name))
            if entry is not None:
                table[entry.pid] = entry
    return table


def read_entry(pid: int) -> ProcessEntry | None:
    """Read one process; None when it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a Path takes as long as the read
            return parse_stat(pid, file.read())
    except FileNotFoundError:
        return None if _PROC.joinpath("self", "stat").exists() else _portable_entry(pid)
    except OSError:  # It ended while it was read.
        return None


def parse_stat(pid: int, line: bytes) -> ProcessEntry:
    """Parse a line of ``/proc/PID/stat``, in which the program's name may have spaces and parentheses.

    >>> line = b"7 (a) b) S 1 7 5 0 -1 0 0 0 0 0 200 100 0 0 20 0 1 0 4711 0 3"
    >>> parse_stat(7, line).parent, parse_stat(7, line).session, parse_stat(7, line).ticks
    (1, 5, 4711)
    """
    fields = line.rpartition(b")")[2].split()
    return ProcessEntry(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        ticks=int(fields[19]),
        zombie=fields[0] in (b"Z", b"X"),
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory=int(fields[21]) * _PAGE,
    )


def descendants(table: ProcessTable, roots: Iterable[int]) -> list[int]:
    """Return the pids of all descendants of some processes, sorted, without these themselves."""
    below: dict[int, list[int]] = {}
    for entry in table.values():
        below.setdefault(entry.parent, []).append(entry.pid)
    seen = set(roots)
    waiting = sorted(seen)
    found = []
    while waiting:
        for child in sorted(below.get(waiting.pop(), ())):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return sorted(found)


def _read_portably() -> ProcessTable:
    entries = (_portable_entry(pid) for pid in psutil.pids())
    return {entry.pid: entry for entry in entries if entry is not None}


def _portable_entry(pid: int) -> ProcessEntry | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessEntry(
                pid=pid,
                parent=process.ppid(),
                session=os.getsid(pid),
                ticks=round(process.create_time() * _TICKS),
                zombie=process.status() == psutil.STATUS_ZOMBIE,
                cpu=times.user + times.system,
                memory=process.memory_info().rss,
            )
    except (psutil.Error, OSError):
        return None
