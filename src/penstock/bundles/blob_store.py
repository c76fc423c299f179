"""A store of files named by the SHA-256 of their content, used by supervisors for large bundles."""

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
    """A blob cannot be stored or read. The base class of the errors below."""


class BlobNameError(BlobError):
    """The name of a blob is not a SHA-256."""


class BlobMissingError(BlobError):
    """The blob does not exist here."""


class BlobSizeError(BlobError):
    """A blob is larger than allowed."""


class BlobWriter:
    """Writes a blob to a file, up to a maximum size."""

    def __init__(self, file: BinaryIO, max_size: int) -> None:
        self._file = file
        self._max_size = max_size
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_size:
            raise BlobSizeError(f"the blob is larger than {megabytes(self._max_size)}")
        self._digest.update(piece)
        self._file.write(piece)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the data written so far."""
        return self._digest.hexdigest()


class BlobStore:
    """The blobs of one supervisor, the only process that writes to the folder."""

    def __init__(self, folder: Path, *, max_size: int = MOST_PACKED) -> None:
        self._folder = folder
        self._max_size = max_size
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"{_STAGED}*"):
            left.unlink(missing_ok=True)

    @contextmanager
    def incoming(self, sha256: str) -> Iterator[BlobWriter]:
        """Give a writer for a blob; at the end of the context store the blob if its SHA-256 is correct."""
        path = self._path(sha256)
        staged = self._folder / f"{_STAGED}{secrets.token_hex(8)}"
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                blob = BlobWriter(file, self._max_size)
                yield blob
            if blob.sha256 != sha256:
                raise BlobError(f"the content received for blob {sha256} has the SHA-256 {blob.sha256}")
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)

    def put(self, sha256: str, data: bytes) -> None:
        """Store a blob, replacing an existing copy."""
        with self.incoming(sha256) as blob:
            blob.write(data)

    def open(self, sha256: str) -> BinaryIO:
        """Check the SHA-256 of a blob, then open it for reading."""
        try:
            file = self._path(sha256).open("rb")
        except FileNotFoundError:
            raise BlobMissingError(f"there is no blob {sha256} here") from None
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            file.close()
            raise BlobError(f"the blob {sha256} on this node is damaged")
        file.seek(0)
        return file

    def get(self, sha256: str) -> bytes:
        """Check the SHA-256 of a blob, then return it."""
        with self.open(sha256) as file:
            return file.read()

    def names(self) -> list[str]:
        """Return the names of all blobs, sorted."""
        return sorted(name for name in os.listdir(self._folder) if is_sha256(name))

    def stored(self, sha256: str) -> float:
        """Return when a blob was stored, in seconds since 1970; infinity if it does not exist."""
        try:
            return self._path(sha256).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def remove(self, sha256: str) -> None:
        """Remove a blob if it exists."""
        self._path(sha256).unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise BlobNameError("the name of a blob must be a SHA-256: 64 lower-case hexadecimal digits")
        return self._folder / sha256
