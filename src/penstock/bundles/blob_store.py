"""A store of files named by the SHA-256 of their content, in which supervisors keep large bundles."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from penstock.bundles.bundle_limits import MOST_PACKED, megabytes
from penstock.bundles.bundle_manifest import is_sha256
from penstock.bundles.bundle_signature import BundleError

_STAGED = ".staged-"


class BlobError(BundleError):
    """A blob cannot be kept or given. The root of those below."""


class BlobNameError(BlobError):
    """Blobs are named by a SHA-256 and by nothing else."""


class BlobMissingError(BlobError):
    """There is no such blob here."""


class BlobSizeError(BlobError):
    """A blob is larger than allowed."""


class BlobWriter:
    """A blob that is being written."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = most
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most:
            raise BlobSizeError(f"the blob is larger than {megabytes(self._most)}")
        self._digest.update(piece)
        self._file.write(piece)

    @property
    def sha256(self) -> str:
        """Of what was written so far."""
        return self._digest.hexdigest()


class BlobStore:
    """Blobs of one supervisor, which is the only process that writes there."""

    def __init__(self, folder: Path, *, most: int = MOST_PACKED) -> None:
        self._folder = folder
        self._most = most
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"{_STAGED}*"):
            left.unlink(missing_ok=True)

    @contextmanager
    def incoming(self, sha256: str) -> Iterator[BlobWriter]:
        """Let a blob be written in pieces; after the context it is there, if it is the right one."""
        path = self._path(sha256)
        staged = self._folder / f"{_STAGED}{secrets.token_hex(8)}"
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                blob = BlobWriter(file, self._most)
                yield blob
            if blob.sha256 != sha256:
                raise BlobError(f"what came as blob {sha256} has the SHA-256 {blob.sha256}")
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)

    def put(self, sha256: str, data: bytes) -> None:
        """Keep a blob; it is no harm if it is there."""
        with self.incoming(sha256) as blob:
            blob.write(data)

    def open(self, sha256: str) -> BinaryIO:
        """Open a blob for reading, after its SHA-256 was checked."""
        try:
            file = self._path(sha256).open("rb")
        except FileNotFoundError:
            raise BlobMissingError(f"there is no blob {sha256} here") from None
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            file.close()
            raise BlobError(f"the blob {sha256} is damaged here")
        file.seek(0)
        return file

    def get(self, sha256: str) -> bytes:
        """Return a blob, after its SHA-256 was checked."""
        with self.open(sha256) as file:
            return file.read()

    def names(self) -> list[str]:
        """Return what is here, sorted."""
        return sorted(name for name in os.listdir(self._folder) if is_sha256(name))

    def stored(self, sha256: str) -> float:
        """Return when a blob was stored, in seconds since 1970; infinity if it is gone."""
        try:
            return self._path(sha256).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def remove(self, sha256: str) -> None:
        """Forget a blob, if it is here."""
        self._path(sha256).unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise BlobNameError("the name of a blob must be a SHA-256: 64 hexadecimal digits, small letters")
        return self._folder / sha256
