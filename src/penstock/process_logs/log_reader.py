"""Reads what processes have logged: JSON lines of several files in the order of time, bit by bit.

Files may grow, be put aside (``FILE`` becomes ``FILE.1``) or go meanwhile. A reader gets a *cursor* and
brings it back for the rest. It says how far each file was read. Files are known in it by a hash of their
first line, which stays when they are put aside, so that what a client sends can never name a file.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import PenstockError
from penstock.replicas.replica_id import ReplicaId

LONGEST_LINE = 1 << 20
"""Bytes; longer lines are left out."""
MOST_FILES = 300
"""Files that are read together, the newest of them: their cursor still fits into a URL."""
MOST_LINES = 10_000
"""Lines in one answer."""
MOST_BYTES = 4 << 20
"""Bytes in one answer, but for a last line that goes beyond."""
_MOST_ASIDE = 9
_IDENTITY = 6
_PLACE = 6
_STEP = _IDENTITY + _PLACE
"""Bytes of a cursor for each file: its identity, how far it was read, and whether that gave any line."""
_MOST_BARREN = 60
"""Files in a cursor that gave no line: reading one anew would cost time, but double nothing."""


class CursorError(PenstockError):
    """A cursor is not one that was given out."""


@dataclass
class _LogFile:
    """A file that is being read, and how far."""

    file: BinaryIO
    order: int
    position: int
    gave: bool
    """Whether any line of it was taken, now or before."""

    def lines(self, job: str) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Yield (timestamp, order, end, line); whoever takes a line moves ``position`` to its end.

        Lines that are left out are behind ``position`` at once: all before them have been taken by then.
        """
        self.file.seek(self.position)
        end = self.position
        while True:
            raw = self.file.readline(LONGEST_LINE)
            end += len(raw)
            if not raw.endswith(b"\n"):
                if len(raw) < LONGEST_LINE:
                    return  # the end, or a line that is still being written
                skipped = self._skip()
                if skipped is None:
                    return
                end += skipped
                raw = b""
            line = _line(raw, job)
            if line is None:
                self.position = end
            else:
                yield line["timestamp"], self.order, end, line

    def _skip(self) -> int | None:
        """Go to the end of a line that is too long; return how much that was, None if it has no end yet."""
        skipped = 0
        while piece := self.file.readline(LONGEST_LINE):
            skipped += len(piece)
            if piece.endswith(b"\n"):
                return skipped
        return None


def read_lines(files: Sequence[Path], cursor: str, job: str, limit: int) -> tuple[list[dict[str, Any]], str]:
    """Return the next lines about a job (all, if it is empty), at most ``limit``, and the cursor behind them.

    The first cursor is empty. Files put aside are found beside those given. Raises CursorError.
    """
    places = _decode(cursor)
    lines: list[dict[str, Any]] = []
    size = 0
    with ExitStack() as stack:
        readers: dict[bytes, _LogFile] = {}
        for path in _with_those_aside(files):
            try:
                file = stack.enter_context(path.open("rb"))
            except OSError:
                continue
            identity = _identity(file)
            if identity is not None and identity not in readers:
                position, gave = places.get(identity, (0, False))
                readers[identity] = _LogFile(file, len(readers), _start(file, position), gave)
        by_order = list(readers.values())
        for _, order, end, line in heapq.merge(
            *(reader.lines(job) for reader in by_order), key=lambda found: found[:2]
        ):
            lines.append(line)
            reader = by_order[order]
            size += end - reader.position
            reader.position, reader.gave = end, True
            if len(lines) >= min(limit, MOST_LINES) or size >= MOST_BYTES:
                break
        read = {identity: (reader.position, reader.gave) for identity, reader in readers.items()}
        # A file that was just being put aside may not have been found: it must not be read anew later.
        lost = {identity: place for identity, place in places.items() if identity not in read}
        return lines, _encode({**lost, **read})


def _with_those_aside(files: Sequence[Path]) -> list[Path]:
    """Return the newest files, each before those put aside of it: one that moves meanwhile is met again."""
    found: list[tuple[float, Path]] = []
    for path in sorted(set(files)):
        numbered = (path.with_name(f"{path.name}.{number}") for number in range(1, _MOST_ASIDE + 1))
        for candidate in (path, *numbered):
            try:
                found.append((candidate.stat().st_mtime, candidate))
            except OSError:
                continue
    newest = set(heapq.nlargest(MOST_FILES, found))
    return [path for modified, path in found if (modified, path) in newest]


def _identity(file: BinaryIO) -> bytes | None:
    """Return what a file is known by; None while its first line is not complete."""
    first = file.readline(LONGEST_LINE)
    if not first.endswith(b"\n") and len(first) < LONGEST_LINE:
        return None
    return hashlib.sha256(first).digest()[:_IDENTITY]


def _start(file: BinaryIO, position: int) -> int:
    """Check that a position is the start of a line."""
    if position > 0:
        # Systems differ in how far behind the end of a file one may go: not at all is what all allow.
        file.seek(min(position - 1, os.fstat(file.fileno()).st_size))
        if file.read(1) != b"\n":
            raise CursorError("the cursor does not fit these logs: begin anew without one")
    return position


def _line(raw: bytes, job: str) -> dict[str, Any] | None:
    """Return a line if it is one, and about a job or one of its replicas."""
    # Most lines are about other jobs. Names need no escapes in JSON, so those lines need not be parsed.
    if job and job.encode() not in raw:
        return None
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("timestamp"), str):
        return None
    replica = ReplicaId.find(str(line.get("job"))) if job else None
    return line if not job or (replica is not None and replica.job == job) else None


def _encode(places: dict[bytes, tuple[int, bool]]) -> str:
    """Make a cursor of what must be in it, and of what saves most time."""
    giving = [(identity, place) for identity, place in places.items() if place[1]][-MOST_FILES:]
    barren = [(identity, place) for identity, place in places.items() if place[0] and not place[1]]
    saving = heapq.nlargest(_MOST_BARREN, barren, key=lambda each: each[1][0])
    steps = (
        identity + (position * 2 + gave).to_bytes(_PLACE) for identity, (position, gave) in giving + saving
    )
    return base64.urlsafe_b64encode(b"".join(sorted(steps))).decode()


def _decode(cursor: str) -> dict[bytes, tuple[int, bool]]:
    try:
        if len(cursor) > (MOST_FILES + _MOST_BARREN) * _STEP * 2:
            raise ValueError
        steps = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        if len(steps) % _STEP:
            raise ValueError
    except ValueError:
        raise CursorError("this is not a cursor of these logs: start again without one") from None
    places = {}
    for at in range(0, len(steps), _STEP):
        place = int.from_bytes(steps[at + _IDENTITY : at + _STEP])
        places[steps[at : at + _IDENTITY]] = (place >> 1, bool(place & 1))
    return places
