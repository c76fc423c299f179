"""Reads the logs of processes: JSON lines of several files, merged by time, page by page.

Files may grow, be rotated (``FILE`` becomes ``FILE.1``) or be deleted meanwhile. Each page comes with a
*cursor*, which the client sends to get the next page. A cursor has the position in each file. It identifies
files by a hash of their first line, which does not change by rotation and cannot name a path.
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
"""Maximum bytes of a line; longer lines are skipped."""
MOST_FILES = 300
"""Maximum number of files read together, the newest ones: their cursor still fits into a URL."""
MOST_LINES = 10_000
"""Maximum number of lines in a page."""
MOST_BYTES = 4 << 20
"""Maximum bytes of a page; the last line may exceed it."""
_MOST_ROTATED = 9
_IDENTITY = 6
_POSITION = 6
_ENTRY = _IDENTITY + _POSITION
"""Bytes of a cursor for each file: its identity, the position, and whether a line of it was returned."""
_MOST_UNUSED = 60
"""Maximum number of files in a cursor without a returned line: reading them again only takes time."""


class CursorError(PenstockError):
    """A cursor is not valid."""


@dataclass
class _LogFile:
    """A file that is being read, and the position in it."""

    file: BinaryIO
    order: int
    position: int
    used: bool
    """Whether any line of the file was returned, now or before."""

    def lines(self, job: str) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Yield (timestamp, order, end, line). The caller moves ``position`` to the end of a used line.

        ``position`` moves past skipped lines at once, because all lines before them have been used by then.
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
        """Skip the rest of a line that is too long; return its bytes, or None if it is incomplete."""
        skipped = 0
        while piece := self.file.readline(LONGEST_LINE):
            skipped += len(piece)
            if piece.endswith(b"\n"):
                return skipped
        return None


def read_lines(files: Sequence[Path], cursor: str, job: str, limit: int) -> tuple[list[dict[str, Any]], str]:
    """Return the next lines about a job (all if it is empty), at most ``limit``, and the next cursor.

    The first cursor is empty. Rotated files are found beside the given ones. Raises CursorError.
    """
    positions = _decode(cursor)
    lines: list[dict[str, Any]] = []
    size = 0
    with ExitStack() as stack:
        readers: dict[bytes, _LogFile] = {}
        for path in _with_rotated(files):
            try:
                file = stack.enter_context(path.open("rb"))
            except OSError:
                continue
            identity = _identity(file)
            if identity is not None and identity not in readers:
                position, used = positions.get(identity, (0, False))
                readers[identity] = _LogFile(file, len(readers), _start(file, position), used)
        by_order = list(readers.values())
        for _, order, end, line in heapq.merge(
            *(reader.lines(job) for reader in by_order), key=lambda found: found[:2]
        ):
            lines.append(line)
            reader = by_order[order]
            size += end - reader.position
            reader.position, reader.used = end, True
            if len(lines) >= min(limit, MOST_LINES) or size >= MOST_BYTES:
                break
        read = {identity: (reader.position, reader.used) for identity, reader in readers.items()}
        # A file may be missing because it was just being rotated: keep its position for the next page.
        missing = {identity: position for identity, position in positions.items() if identity not in read}
        return lines, _encode({**missing, **read})


def _with_rotated(files: Sequence[Path]) -> list[Path]:
    """Return the newest files, each before its rotated ones, so that a file rotated meanwhile is found."""
    found: list[tuple[float, Path]] = []
    for path in sorted(set(files)):
        numbered = (path.with_name(f"{path.name}.{number}") for number in range(1, _MOST_ROTATED + 1))
        for candidate in (path, *numbered):
            try:
                found.append((candidate.stat().st_mtime, candidate))
            except OSError:
                continue
    newest = set(heapq.nlargest(MOST_FILES, found))
    return [path for modified, path in found if (modified, path) in newest]


def _identity(file: BinaryIO) -> bytes | None:
    """Return the identity of a file, a hash of its first line; None while that line is incomplete."""
    first = file.readline(LONGEST_LINE)
    if not first.endswith(b"\n") and len(first) < LONGEST_LINE:
        return None
    return hashlib.sha256(first).digest()[:_IDENTITY]


def _start(file: BinaryIO, position: int) -> int:
    """Return a position after checking that it is the start of a line."""
    if position > 0:
        # Systems differ in how far a seek may go beyond the end of a file, so do not go beyond it.
        file.seek(min(position - 1, os.fstat(file.fileno()).st_size))
        if file.read(1) != b"\n":
            raise CursorError("the cursor does not match these logs: start again without a cursor")
    return position


def _line(raw: bytes, job: str) -> dict[str, Any] | None:
    """Decode a log line; None if it is not valid, or not about the job or one of its replicas."""
    # Most lines are about other jobs. A job's name has no escapes in JSON, so they need not be parsed.
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


def _encode(positions: dict[bytes, tuple[int, bool]]) -> str:
    """Encode a cursor: all files with returned lines, and of the others those read furthest."""
    used = [(identity, entry) for identity, entry in positions.items() if entry[1]][-MOST_FILES:]
    unused = [(identity, entry) for identity, entry in positions.items() if entry[0] and not entry[1]]
    furthest = heapq.nlargest(_MOST_UNUSED, unused, key=lambda each: each[1][0])
    entries = (
        identity + (position * 2 + is_used).to_bytes(_POSITION)
        for identity, (position, is_used) in used + furthest
    )
    return base64.urlsafe_b64encode(b"".join(sorted(entries))).decode()


def _decode(cursor: str) -> dict[bytes, tuple[int, bool]]:
    try:
        if len(cursor) > (MOST_FILES + _MOST_UNUSED) * _ENTRY * 2:
            raise ValueError
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        if len(data) % _ENTRY:
            raise ValueError
    except ValueError:
        raise CursorError("this is not a cursor of these logs: start again without a cursor") from None
    positions = {}
    for start in range(0, len(data), _ENTRY):
        entry = int.from_bytes(data[start + _IDENTITY : start + _ENTRY])
        positions[data[start : start + _IDENTITY]] = (entry >> 1, bool(entry & 1))
    return positions
