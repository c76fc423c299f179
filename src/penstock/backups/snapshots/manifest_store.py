"""The manifests of one job's snapshots that a store keeps: numbered files, each with a checksum.

With its manifest a snapshot counts. It is written beside and renamed, after all it names is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.backups.snapshots.durable_files import disk_full_errors, make_private, write_durably
from penstock.backups.snapshots.object_store import FileStamp
from penstock.backups.snapshots.snapshot_errors import ManifestError
from penstock.backups.snapshots.snapshot_manifest import Manifest
from penstock.local_files import sync

_NAME = re.compile(r"(\d{1,13})\.json")


@dataclass(frozen=True)
class StoredManifest:
    """A manifest as it was written here, and what its objects looked like then."""

    manifest: Manifest
    prints: Mapping[str, FileStamp]


class ManifestStore:
    """The manifests of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """The numbers of all manifests here, newest first, damaged ones included."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = (_NAME.fullmatch(name) for name in names)
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def read(self, number: int) -> StoredManifest:
        """Read a manifest. Raises ManifestError if it is torn, altered or gone."""
        written, prints = self._lines(number)
        manifest = Manifest.from_json(written)
        if manifest.number != number:
            raise ManifestError(f"snapshot {number}: its file is that of another, {manifest.number}")
        return StoredManifest(manifest, _prints(prints))

    def names(self, number: int) -> set[str]:
        """The objects that a snapshot consists of; cheaper than reading it. Raises ManifestError."""
        return set(_prints(self._lines(number)[1]))

    def _lines(self, number: int) -> tuple[bytes, bytes]:
        path = self._path(number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ManifestError(f"snapshot {number}: {path} cannot be read: {error.strerror}") from None
        checksum, _, body = content.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise ManifestError(f"snapshot {number}: {path} is damaged")
        written, _, prints = body.partition(b"\n")
        return written, prints

    def newest(self) -> StoredManifest | None:
        """The newest manifest that can be read."""
        for number in self.numbers():
            with suppress(ManifestError):
                return self.read(number)
        return None

    def write(self, manifest: Manifest, prints: Mapping[str, FileStamp]) -> None:
        """Make a snapshot count."""
        noted = json.dumps({sha256: list(prints[sha256]) for sha256 in sorted(prints)}).encode()
        body = manifest.to_json() + b"\n" + noted
        path = self._path(manifest.number)
        with disk_full_errors():
            make_private(self._folder)
            write_durably(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            for above in self._folder.parents[:2]:
                sync(above)

    def remove(self, number: int) -> None:
        """Forget a snapshot; what it consisted of is for others to remove."""
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"


def _prints(text: bytes) -> dict[str, FileStamp]:
    """Read what objects looked like."""
    try:
        return {sha256: (size, time) for sha256, (size, time) in json.loads(text).items()}
    except (ValueError, RecursionError, TypeError, AttributeError):
        raise ManifestError("it does not say what its objects looked like") from None
