"""Staged files of a job: where they are, how it is known that they are out, and when they are leftovers.

Jobs may share a folder, so each has one of its own in it, and nobody touches that of another. A batch that is
out gets a mark, which stays until later batches have theirs: files that are gone without one are lost, and
never taken for delivered.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.errors import FolderError
from penstock.private_files import sync

STAGED = "staged"
"""Where, below Penstock's home, records wait for sinks that have no place for them."""

DONE = ".done"
"""The ending of a mark."""

ABANDONED = 30 * 24 * 3600.0
"""Seconds after which a staged file is the leftover of a crash."""

_KEPT = 1000
"""How many marks stay. A job asks for that of its last batch, a replica that is behind for earlier ones; one
that is further behind copies a snapshot."""


def folder_of(job: str) -> str:
    """Return the name of a job's folder among those of other jobs.

    >>> folder_of("my job"), folder_of("..")
    ('my%20job', '%2E%2E')
    """
    quoted = quote(job, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def lost_file_error(path: Path, mark: Path) -> FolderError:
    """Return what to say of a staged file that is gone, though nobody knows that it is out."""
    return FolderError(
        f"{path} is gone, and with it records that the sink may not have got: put it back. If the sink has"
        f" them, make an empty file {mark}, and the job goes on without it"
    )


class DeliveryMarks:
    """Makes the marks of a job's batches, and removes what is of no use to anybody any more."""

    def __init__(self) -> None:
        self._recent: dict[Path, deque[Path]] = {}
        """By folder, the marks that are there, the oldest first."""
        self._tidied: set[Path] = set()

    def make(self, mark: Path, *, synced: bool = False) -> None:
        """Say of a batch that it is out, and stop to say it of one long ago."""
        recent = self._recent.get(mark.parent)
        if recent is None:
            recent = self._recent[mark.parent] = _marks_in(mark.parent)
        os.close(os.open(mark, os.O_CREAT | os.O_CLOEXEC, 0o600))
        if synced:
            sync(mark.parent)
        if mark not in recent:
            recent.append(mark)
        while len(recent) > _KEPT:
            recent.popleft().unlink(missing_ok=True)

    def tidy(self, folder: Path, now: float | None = None) -> None:
        """Remove from a job's folder, once in a process, what crashes have left there long ago.

        Only when all sinks of the job have got what is theirs: a file may be old and wait for another sink,
        since a job can be started again after any time.
        """
        if folder in self._tidied:
            return
        limit = (time.time() if now is None else now) - ABANDONED
        for path in sorted(folder.rglob("*")):
            try:
                if path.suffix != DONE and path.is_file() and path.stat().st_mtime < limit:
                    path.unlink()
            except FileNotFoundError:
                continue  # its owner was faster
        self._tidied.add(folder)

    def __reduce__(self) -> Any:
        # Only a driver makes marks.
        return DeliveryMarks, ()


def _marks_in(folder: Path) -> deque[Path]:
    """Return the marks in a folder, the oldest first."""
    marks = []
    for path in folder.rglob(f"*{DONE}"):
        try:
            marks.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue  # Another replica has removed it.
    return deque(path for _, path in sorted(marks))
