"""The manifests of one job's snapshots in a store: numbered files, each with a checksum.

The manifest commits a snapshot: it is written atomically after all objects of the snapshot are durable.
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
    """A stored manifest, and the stamps of its objects at that time."""

    manifest: Manifest
    stamps: Mapping[str, FileStamp]


class ManifestStore:
    """The manifests of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """Return the numbers of all manifests, newest first, including damaged ones."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = (_NAME.fullmatch(name) for name in names)
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def read(self, number: int) -> StoredManifest:
        """Read a manifest. Raises ManifestError if it is damaged or missing."""
        encoded, stamps = self._lines(number)
        manifest = Manifest.from_json(encoded)
        if manifest.number != number:
            raise ManifestError(f"snapshot {number}: its file contains snapshot {manifest.number}")
        return StoredManifest(manifest, _stamps(stamps))

    def object_names(self, number: int) -> set[str]:
        """Return the objects of a snapshot, without decoding its manifest. Raises ManifestError."""
        return set(_stamps(self._lines(number)[1]))

    def _lines(self, number: int) -> tuple[bytes, bytes]:
        path = self._path(number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ManifestError(f"snapshot {number}: {path} cannot be read: {error.strerror}") from None
        checksum, _, body = content.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise ManifestError(f"snapshot {number}: {path} is damaged")
        encoded, _, stamps = body.partition(b"\n")
        return encoded, stamps

    def newest(self) -> StoredManifest | None:
        """Return the newest manifest that can be read."""
        for number in self.numbers():
            with suppress(ManifestError):
                return self.read(number)
        return None

    def write(self, manifest: Manifest, stamps: Mapping[str, FileStamp]) -> None:
        """Write a manifest durably, which commits its snapshot."""
        encoded_stamps = json.dumps({sha256: list(stamps[sha256]) for sha256 in sorted(stamps)}).encode()
        body = manifest.to_json() + b"\n" + encoded_stamps
        path = self._path(manifest.number)
        with disk_full_errors():
            make_private(self._folder)
            write_durably(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            for above in self._folder.parents[:2]:
                sync(above)

    def remove(self, number: int) -> None:
        """Remove a manifest; the caller removes its objects."""
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"


def _stamps(text: bytes) -> dict[str, FileStamp]:
    """Decode the stamps of objects."""
    try:
        return {sha256: (size, time) for sha256, (size, time) in json.loads(text).items()}
    except (ValueError, RecursionError, TypeError, AttributeError):
        raise ManifestError("the stamps of its objects are not valid") from None
