"""What a snapshot consists of: files with their digests and paths.

Reading one validates everything, paths included.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from penstock.backups.snapshots.snapshot_errors import ManifestError

SCHEMA = 1
MOST_FILES = 1_000_000
MOST_NUMBER = 10**12
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a snapshot."""

    path: str
    """Relative to the job's home, with slashes."""
    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """A snapshot: the job's home as it was between two batches.

    >>> manifest = Manifest("count", 7, 2, 1, 41, 12.5, (SnapshotFile("logs/in/log.json", "ab" * 32, 120),))
    >>> Manifest.from_json(manifest.to_json()) == manifest, manifest.total_bytes
    (True, 120)
    """

    job: str
    number: int
    """Grows with each snapshot of the job, over all its revisions and stores: the store gives it, and it is
    no smaller than the one that the snapshot came with."""
    revision: int
    attempt: int
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    at: float
    pieces: tuple[SnapshotFile, ...]
    folders: tuple[str, ...] = ()
    """Folders that are to be there even if no file is in them, such as those of a log's partitions."""

    @property
    def total_bytes(self) -> int:
        """The size of all files together."""
        return sum(piece.size for piece in self.pieces)

    def to_json(self) -> bytes:
        """Write it down."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Read it; raises ManifestError for whatever could not be one, paths that lead elsewhere included."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise ManifestError("a manifest is JSON") from None
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ManifestError(f"a manifest is an object of schema {SCHEMA}")
        pieces = content.pop("pieces", None)
        if not isinstance(pieces, list) or len(pieces) > MOST_FILES:
            raise ManifestError(f"a manifest has a list of pieces, {MOST_FILES:,} at most")
        folders = content.pop("folders", [])
        if not isinstance(folders, list) or len(folders) > MOST_FILES:
            raise ManifestError(f"a manifest has a list of folders, {MOST_FILES:,} at most")
        try:
            manifest = cls(
                **content,
                pieces=tuple(_piece(piece) for piece in pieces),
                folders=tuple(_folder(folder) for folder in folders),
            )
        except TypeError as error:
            raise ManifestError(f"a manifest has other fields: {error}") from None
        numbers = (manifest.number, manifest.revision, manifest.attempt, manifest.batch)
        if not isinstance(manifest.job, str) or any(type(number) is not int for number in numbers):
            raise ManifestError("a manifest names a job, and counts in whole numbers")
        if min(numbers) < -1 or max(numbers) > MOST_NUMBER:
            raise ManifestError(f"what a manifest counts goes from -1 to {MOST_NUMBER}")
        if isinstance(manifest.at, bool) or not isinstance(manifest.at, int | float):
            raise ManifestError("a manifest says when it was made")
        if not math.isfinite(manifest.at):
            raise ManifestError("a manifest says when it was made")
        _check_paths(manifest)
        return manifest


def _check_paths(manifest: Manifest) -> None:
    files = {piece.path for piece in manifest.pieces}
    if len(files) < len(manifest.pieces):
        raise ManifestError("a manifest names each path once")
    named = (*files, *(f"{folder}/" for folder in manifest.folders))
    folders = {path[:end] for path in named for end, letter in enumerate(path) if letter == "/"}
    if both := sorted(files & folders):
        raise ManifestError(f"{both[0]} cannot be a file and a folder")


def _folder(given: Any) -> str:
    if not isinstance(given, str) or not is_inside(given):
        raise ManifestError(f"{given!r} is not a path inside a job's home")
    return given


def _piece(given: Any) -> SnapshotFile:
    if not isinstance(given, dict) or set(given) != {"path", "sha256", "size"}:
        raise ManifestError("a piece has a path, a sha256 and a size")
    path, sha256, size = given["path"], given["sha256"], given["size"]
    if not isinstance(path, str) or not is_inside(path):
        raise ManifestError(f"{path!r} is not a path inside a job's home")
    if not is_sha256(sha256):
        raise ManifestError(f"{path}: {sha256!r} is not a SHA-256")
    if type(size) is not int or size < 0:
        raise ManifestError(f"{path}: {size!r} is not a size")
    return SnapshotFile(path, sha256, size)


def is_sha256(given: Any) -> bool:
    """Whether something is a SHA-256 as it is written here: 64 small hexadecimal digits."""
    return isinstance(given, str) and _SHA256.fullmatch(given) is not None


def is_inside(path: str) -> bool:
    """Whether a relative path stays where it is put.

    >>> [is_inside(path) for path in ("logs/a", "/etc/passwd", "a/../../b", ".", "", "a//b", "a\\x00b")]
    [True, False, False, False, False, False, False]
    """
    return len(path) <= 1024 and all(map(_is_name, path.split("/")))


def _is_name(part: str) -> bool:
    # What is not printable includes halves of characters, which no file system takes.
    return part not in ("", ".", "..") and part.isprintable() and len(part.encode()) <= 255
