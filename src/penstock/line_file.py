"""A file of lines that several processes append to, whose size and rate are bounded.

Each line is one ``write`` to a file that was opened for appending, so lines of different processes are never
mixed. A file that is full is put aside as ``FILE.1``, and so on; the oldest part is removed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

PARTS = 4
"""Into how many files the allowed size is divided: the one that is written, and those put aside."""


class LineFile:
    """Appends lines to a file. What goes wrong is not raised: a caller learns that a line is lost."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._part = size // PARTS
        self._descriptor = -1
        self._torn = False
        """Whether the last line was written in part: the disk was full."""

    def append(self, line: bytes) -> bool:
        """Append a line that ends with a newline; say whether it is in the file."""
        try:
            if not self._has_room(len(line)):
                return False
            whole = b"\n" + line if self._torn else line
            self._torn = os.write(self._descriptor, whole) < len(whole)
        except OSError:
            return False
        return not self._torn

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _has_room(self, length: int) -> bool:
        """Open the file if it is not, and put it aside if it is full; say whether there is room now."""
        if self._descriptor < 0:
            self._open()
        if self._fits(length):
            return True
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # Who holds it may be paused. A line is not worth waiting for.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have put the file aside already.
            self.close()
            self._open()
            if not self._fits(length):
                self._put_aside()
                self.close()
                self._open()
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return self._fits(length)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _fits(self, length: int) -> bool:
        found = os.fstat(self._descriptor)
        return found.st_nlink > 0 and found.st_size + length + 1 <= self._part

    def _put_aside(self) -> None:
        for number in range(PARTS - 1, 0, -1):
            newer = self._path if number == 1 else self._aside(number - 1)
            if newer.exists():
                newer.replace(self._aside(number))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class RateLimit:
    """Lets ``rate`` lines a second pass, and after a pause up to ``burst`` at once; counts those that do not.

    >>> limit = RateLimit(rate=2, burst=3)
    >>> [limit.allows(at) for at in (0.0, 0.0, 0.0, 0.0, 0.5, 0.5)]
    [True, True, True, False, True, False]
    >>> limit.dropped
    2
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._seen: float | None = None
        self.dropped = 0
        """How many lines have not passed since somebody has set this to 0."""

    def allows(self, now: float) -> bool:
        """Say whether a line may pass at a moment, of a clock that only goes forward."""
        if self._seen is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._seen) * self._rate)
        self._seen = now
        if self._tokens < 1.0:
            self.dropped += 1
            return False
        self._tokens -= 1.0
        return True
