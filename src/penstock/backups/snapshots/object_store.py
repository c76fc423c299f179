"""The objects of one job's snapshots: files named by the SHA-256 of their content, and unfinished uploads.

An object is written to ``parts/SHA256.part``; an interrupted upload continues where that file ends. When it
is complete and its digest is correct, it is renamed into ``objects``. The commit of a snapshot flushes its
objects to disk.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from penstock.backups.snapshots.durable_files import disk_full_errors, make_private, sync_all
from penstock.backups.snapshots.snapshot_errors import (
    SnapshotDamagedError,
    SnapshotFullError,
    SnapshotMissingError,
    SnapshotNameError,
    SnapshotOffsetError,
    SnapshotSizeError,
)
from penstock.backups.snapshots.snapshot_manifest import is_sha256

MOST_OBJECT = 64 << 30
RESERVE = 64 << 20
"""Bytes of the disk that are kept free."""
_BLOCK = 1 << 20
_PART = ".part"

FileStamp = tuple[int, int]
"""Size and modification time of a file: while they are unchanged, its content counts as unchanged."""


class Hash(Protocol):
    """A digest that is being computed."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class ObjectUpload:
    """An upload of one object. Written blocks are kept if the upload is interrupted."""

    def __init__(self, objects: Objects, sha256: str, file: BinaryIO, held: int, size: int, digest: Hash):
        self._objects = objects
        self._file = file
        self._digest = digest
        self.sha256 = sha256
        self.size = size
        self.held = held
        """How many bytes have been received."""

    def write(self, data: bytes) -> None:
        """Append data. Raises SnapshotOffsetError when a later upload of the object has begun."""
        if self.held + len(data) > self.size:
            raise SnapshotSizeError(f"the object {self.sha256} has more than the {self.size} bytes announced")
        with self._objects.writing(self), disk_full_errors():
            view = memoryview(data)
            while view:
                count = self._file.write(view)
                self._digest.update(view[:count])
                self.held += count
                view = view[count:]

    def finish(self) -> bool:
        """Store the object if it is complete, and return whether it is.

        Raises SnapshotDamagedError, and discards the object, if its digest is wrong.
        """
        if self.held < self.size:
            return False
        with self._objects.writing(self):
            self._objects.store(self, intact=self._digest.hexdigest() == self.sha256)
        return True

    def close(self) -> None:
        """Close the file. A later upload continues an unfinished object."""
        self._file.close()
        self._objects.end_upload(self)

    def __enter__(self) -> ObjectUpload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Objects:
    """All objects of one job."""

    def __init__(self, folder: Path, *, reserve: int = RESERVE) -> None:
        self._complete = folder / "objects"
        self._parts = folder / "parts"
        self._reserve = reserve
        self._lock = threading.Lock()
        self._uploads: dict[str, ObjectUpload] = {}
        self.checked: dict[str, FileStamp] = {}
        """The stamps of objects whose digest was correct when they were received."""

    def path(self, sha256: str) -> Path:
        """Return the path of an object, whether it exists or not."""
        if not is_sha256(sha256):
            raise SnapshotNameError("an object is named by its SHA-256: 64 lower-case hexadecimal digits")
        return self._complete / sha256[:2] / sha256

    def open(self, sha256: str) -> BinaryIO:
        """Open an object. The reader must check its digest: the file may be damaged."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise SnapshotMissingError(f"there is no object {sha256} here") from None

    def stamp(self, sha256: str) -> FileStamp | None:
        """Return the stamp of an object; None if it does not exist."""
        try:
            status = self.path(sha256).stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns

    def received(self, sha256: str) -> int:
        """Return the number of bytes received of an incomplete object."""
        try:
            return self._part(sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def begin(self, sha256: str, offset: int, size: int) -> ObjectUpload:
        """Begin an upload at an offset; received data after the offset is discarded.

        A later upload replaces an earlier one, whose broken connection may stay open on this side for long.
        """
        self.path(sha256)
        if not 0 <= size <= MOST_OBJECT:
            raise SnapshotSizeError(f"an object has at most {MOST_OBJECT} bytes, not {size}")
        self.check_free_space(size - offset)
        with self._lock, disk_full_errors():
            descriptor = self._open(self._part(sha256), 0)
            file = os.fdopen(descriptor, "r+b", buffering=0)
            try:
                held = os.fstat(descriptor).st_size
                if not 0 <= offset <= min(held, size):
                    raise SnapshotOffsetError(
                        f"the object {sha256} continues at byte {held} of {size}, not {offset}", held
                    )
                digest = hashlib.sha256()
                file.truncate(offset)
                _hash(file, digest)
                upload = ObjectUpload(self, sha256, file, offset, size, digest)
            except BaseException:
                file.close()
                raise
            self._uploads[sha256] = upload
        return upload

    def put(self, sha256: str, data: bytes) -> None:
        """Store a complete small object. Raises SnapshotDamagedError."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _wrong_content_error(sha256)
        part = self._part(sha256)
        with self._lock, disk_full_errors():
            self._uploads.pop(sha256, None)
            with os.fdopen(self._open(part, os.O_TRUNC), "wb") as file:
                file.write(data)
            self._keep(sha256, part)

    @contextmanager
    def writing(self, upload: ObjectUpload) -> Iterator[None]:
        """Hold the lock for one upload. Raises SnapshotOffsetError if a later upload has begun."""
        with self._lock:
            if self._uploads.get(upload.sha256) is not upload:
                raise SnapshotOffsetError(
                    f"a later upload of the object {upload.sha256} has begun", upload.held
                )
            yield

    def store(self, upload: ObjectUpload, *, intact: bool) -> None:
        """Store a complete upload, or discard it if it is not intact. Requires the lock of ``writing``."""
        sha256, part = upload.sha256, self._part(upload.sha256)
        if not intact:
            part.unlink(missing_ok=True)
            raise _wrong_content_error(sha256)
        with disk_full_errors():
            self._keep(sha256, part)

    def _keep(self, sha256: str, part: Path) -> None:
        path = self.path(sha256)
        try:
            part.replace(path)
        except FileNotFoundError:
            make_private(path.parent)
            part.replace(path)
        status = path.stat()
        self.checked[sha256] = (status.st_size, status.st_mtime_ns)

    def _open(self, part: Path, flags: int) -> int:
        flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(part, flags, 0o600)
        except FileNotFoundError:
            make_private(self._parts)
            return os.open(part, flags, 0o600)

    def end_upload(self, upload: ObjectUpload) -> None:
        """Remove an upload from those in progress."""
        with self._lock:
            if self._uploads.get(upload.sha256) is upload:
                del self._uploads[upload.sha256]

    def is_intact(self, sha256: str) -> bool:
        """Read an object and return whether its digest is correct. A damaged object is removed."""
        digest = hashlib.sha256()
        try:
            with self.path(sha256).open("rb", buffering=0) as file:
                _hash(file, digest)
        except OSError:
            return False
        intact = digest.hexdigest() == sha256
        if not intact:
            self.remove([sha256])
        return intact

    def sync(self, names: Iterable[str]) -> None:
        """Flush objects and their folders to disk."""
        paths = [self.path(sha256) for sha256 in names]
        with disk_full_errors():
            sync_all(paths)
            sync_all(sorted({folder for path in paths for folder in (path.parent, self._complete)}))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for sha256 in names:
            self.checked.pop(sha256, None)
            self.path(sha256).unlink(missing_ok=True)

    def forget_checked(self, names: Iterable[str]) -> None:
        """Drop the stamps of objects in ``checked``: a manifest has stored them."""
        with self._lock:
            for sha256 in names:
                self.checked.pop(sha256, None)

    def older_than(self, before: float) -> list[str]:
        """Return the objects received before a time, and remove unfinished uploads from before it."""
        for part in _files(self._parts):
            with self._lock, suppress(FileNotFoundError):
                if part.stem not in self._uploads and part.stat().st_mtime < before:
                    part.unlink()
        found = []
        for path in (path for folder in _files(self._complete) for path in _files(folder)):
            with suppress(FileNotFoundError):
                if is_sha256(path.name) and path.stat().st_mtime < before:
                    found.append(path.name)
        return found

    def _part(self, sha256: str) -> Path:
        return self._parts / f"{sha256}{_PART}"

    def check_free_space(self, needed: int) -> None:
        """Raise SnapshotFullError unless the disk has ``needed`` bytes beside the reserve."""
        disk = os.statvfs(_nearest_existing(self._parts))
        if disk.f_bavail * disk.f_frsize - needed < self._reserve:
            raise SnapshotFullError(f"{self._parts}: no space for {needed} more bytes: free some disk space")


def _wrong_content_error(sha256: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(f"the content received for object {sha256} has another digest: discarded")


def _nearest_existing(folder: Path) -> Path:
    """Return a folder, or its nearest parent that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _hash(file: BinaryIO, digest: Hash) -> None:
    while block := file.read(_BLOCK):
        digest.update(block)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
