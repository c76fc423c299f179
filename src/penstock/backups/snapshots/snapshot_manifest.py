"""The manifest of a snapshot: its files with paths and digests.

Decoding a manifest validates everything, including paths.
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
    """Relative to the job's home, separated by slashes."""
    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """A snapshot: the state of the job's home between two batches.

    >>> manifest = Manifest("count", 7, 2, 1, 41, 12.5, (SnapshotFile("logs/in/log.json", "ab" * 32, 120),))
    >>> Manifest.from_json(manifest.to_json()) == manifest, manifest.total_bytes
    (True, 120)
    """

    job: str
    number: int
    """Increases with each snapshot of the job, across all its revisions and stores. The store assigns it, not
    smaller than the number that the snapshot was sent with."""
    revision: int
    attempt: int
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    at: float
    pieces: tuple[SnapshotFile, ...]
    folders: tuple[str, ...] = ()
    """Folders to create even if no file is in them, such as those of a log's partitions."""

    @property
    def total_bytes(self) -> int:
        """The size of all files together."""
        return sum(piece.size for piece in self.pieces)

    def to_json(self) -> bytes:
        """Encode the manifest."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Decode and validate a manifest. Raises ManifestError, also for paths that lead out of the home."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise ManifestError("a manifest must be JSON") from None
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ManifestError(f"a manifest must be an object of schema {SCHEMA}")
        pieces = content.pop("pieces", None)
        if not isinstance(pieces, list) or len(pieces) > MOST_FILES:
            raise ManifestError(f"a manifest must have a list of at most {MOST_FILES:,} pieces")
        folders = content.pop("folders", [])
        if not isinstance(folders, list) or len(folders) > MOST_FILES:
            raise ManifestError(f"a manifest must have a list of at most {MOST_FILES:,} folders")
        try:
            manifest = cls(
                **content,
                pieces=tuple(_piece(piece) for piece in pieces),
                folders=tuple(_folder(folder) for folder in folders),
            )
        except TypeError as error:
            raise ManifestError(f"a manifest has missing or unknown fields: {error}") from None
        numbers = (manifest.number, manifest.revision, manifest.attempt, manifest.batch)
        if not isinstance(manifest.job, str) or any(type(number) is not int for number in numbers):
            raise ManifestError("a manifest must have the name of a job, and integers as its numbers")
        if min(numbers) < -1 or max(numbers) > MOST_NUMBER:
            raise ManifestError(f"the numbers of a manifest must be between -1 and {MOST_NUMBER}")
        if isinstance(manifest.at, bool) or not isinstance(manifest.at, int | float):
            raise ManifestError("a manifest must have the time of its creation")
        if not math.isfinite(manifest.at):
            raise ManifestError("a manifest must have the time of its creation")
        _check_paths(manifest)
        return manifest


def _check_paths(manifest: Manifest) -> None:
    files = {piece.path for piece in manifest.pieces}
    if len(files) < len(manifest.pieces):
        raise ManifestError("a manifest must list each path only once")
    named = (*files, *(f"{folder}/" for folder in manifest.folders))
    folders = {path[:end] for path in named for end, letter in enumerate(path) if letter == "/"}
    if both := sorted(files & folders):
        raise ManifestError(f"{both[0]} cannot be both a file and a folder")


def _folder(given: Any) -> str:
    if not isinstance(given, str) or not is_inside(given):
        raise ManifestError(f"{given!r} is not a path inside a job's home")
    return given


def _piece(given: Any) -> SnapshotFile:
    if not isinstance(given, dict) or set(given) != {"path", "sha256", "size"}:
        raise ManifestError("a piece must have a path, a sha256 and a size")
    path, sha256, size = given["path"], given["sha256"], given["size"]
    if not isinstance(path, str) or not is_inside(path):
        raise ManifestError(f"{path!r} is not a path inside a job's home")
    if not is_sha256(sha256):
        raise ManifestError(f"{path}: {sha256!r} is not a SHA-256")
    if type(size) is not int or size < 0:
        raise ManifestError(f"{path}: {size!r} is not a size")
    return SnapshotFile(path, sha256, size)


def is_sha256(given: Any) -> bool:
    """Return whether a value is a SHA-256 as 64 lower-case hexadecimal digits."""
    return isinstance(given, str) and _SHA256.fullmatch(given) is not None


def is_inside(path: str) -> bool:
    """Return whether a relative path stays inside its base folder.

    >>> [is_inside(path) for path in ("logs/a", "/etc/passwd", "a/../../b", ".", "", "a//b", "a\\x00b")]
    [True, False, False, False, False, False, False]
    """
    return len(path) <= 1024 and all(map(_is_name, path.split("/")))


def _is_name(part: str) -> bool:
    # Not printable includes lone surrogates, which cannot be encoded in a file name.
    return part not in ("", ".", "..") and part.isprintable() and len(part.encode()) <= 255
