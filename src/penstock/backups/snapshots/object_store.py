"""The objects of one job's snapshots: files named by the SHA-256 of their content, and unfinished uploads.

An object is written to ``parts/SHA256.part``; an interrupted upload continues where that file ends.
When it is whole and its digest is right, it is renamed into ``objects``. Whether the disk has it too is seen
to by who makes a snapshot count.
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
"""Bytes of the disk that are left to others."""
_BLOCK = 1 << 20
_PART = ".part"

FileStamp = tuple[int, int]
"""Size and time of change of a file: as long as they stay, its content is taken to be what it was."""


class Hash(Protocol):
    """A digest that is being computed."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class ObjectUpload:
    """One object on its way here. Blocks that were written stay, whatever happens."""

    def __init__(self, objects: Objects, sha256: str, file: BinaryIO, held: int, size: int, digest: Hash):
        self._objects = objects
        self._file = file
        self._digest = digest
        self.sha256 = sha256
        self.size = size
        self.held = held
        """How many bytes of it are here."""

    def write(self, data: bytes) -> None:
        """Add what follows. Raises SnapshotOffsetError when a later upload of the object has begun."""
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
        """Keep the object if it is whole, and say whether it is.

        Raises SnapshotDamagedError if it is not what its name says; it is thrown away then.
        """
        if self.held < self.size:
            return False
        with self._objects.writing(self):
            self._objects.settle(self, right=self._digest.hexdigest() == self.sha256)
        return True

    def close(self) -> None:
        """Close the file. An unfinished object stays, and a later upload continues it."""
        self._file.close()
        self._objects.leave(self)

    def __enter__(self) -> ObjectUpload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Objects:
    """All objects of one job."""

    def __init__(self, folder: Path, *, reserve: int = RESERVE) -> None:
        self._whole = folder / "objects"
        self._parts = folder / "parts"
        self._reserve = reserve
        self._lock = threading.Lock()
        self._coming: dict[str, ObjectUpload] = {}
        self.checked: dict[str, FileStamp] = {}
        """Objects whose digest was right when they came, with what they looked like then."""

    def path(self, sha256: str) -> Path:
        """Where an object is, if it is here."""
        if not is_sha256(sha256):
            raise SnapshotNameError("an object is named by its SHA-256: 64 hexadecimal digits, small letters")
        return self._whole / sha256[:2] / sha256

    def open(self, sha256: str) -> BinaryIO:
        """Open an object. The reader must check its digest: the file may be damaged."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise SnapshotMissingError(f"there is no object {sha256} here") from None

    def look(self, sha256: str) -> FileStamp | None:
        """What an object looks like; None if it is not here."""
        try:
            status = self.path(sha256).stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns

    def held(self, sha256: str) -> int:
        """How many bytes have come of an object that is not whole yet."""
        try:
            return self._part(sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def begin(self, sha256: str, offset: int, size: int) -> ObjectUpload:
        """Let an object be written from an offset on; whatever is there behind it goes.

        A later upload takes over from an earlier one, whose broken connection may be open here for long.
        """
        self.path(sha256)
        if not 0 <= size <= MOST_OBJECT:
            raise SnapshotSizeError(f"an object has {MOST_OBJECT} bytes at most, not {size}")
        self.check_room(size - offset)
        with self._lock, disk_full_errors():
            descriptor = self._open(self._part(sha256), 0)
            file = os.fdopen(descriptor, "r+b", buffering=0)
            try:
                held = os.fstat(descriptor).st_size
                if not 0 <= offset <= min(held, size):
                    raise SnapshotOffsetError(
                        f"the object {sha256} goes on at byte {held} of {size}, not {offset}", held
                    )
                digest = hashlib.sha256()
                file.truncate(offset)
                _hash(file, digest)
                receiving = ObjectUpload(self, sha256, file, offset, size, digest)
            except BaseException:
                file.close()
                raise
            self._coming[sha256] = receiving
        return receiving

    def put(self, sha256: str, data: bytes) -> None:
        """Keep a small object that is here whole. Raises SnapshotDamagedError."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _something_else(sha256)
        part = self._part(sha256)
        with self._lock, disk_full_errors():
            self._coming.pop(sha256, None)
            with os.fdopen(self._open(part, os.O_TRUNC), "wb") as file:
                file.write(data)
            self._keep(sha256, part)

    @contextmanager
    def writing(self, receiving: ObjectUpload) -> Iterator[None]:
        """Hold the lock for one upload. Raises SnapshotOffsetError if a later upload has begun."""
        with self._lock:
            if self._coming.get(receiving.sha256) is not receiving:
                raise SnapshotOffsetError(
                    f"a later upload of the object {receiving.sha256} has begun", receiving.held
                )
            yield

    def settle(self, receiving: ObjectUpload, *, right: bool) -> None:
        """Keep what has come whole, or throw it away. Only while writing."""
        sha256, part = receiving.sha256, self._part(receiving.sha256)
        if not right:
            part.unlink(missing_ok=True)
            raise _something_else(sha256)
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

    def leave(self, receiving: ObjectUpload) -> None:
        """Note that something is no longer on its way."""
        with self._lock:
            if self._coming.get(receiving.sha256) is receiving:
                del self._coming[receiving.sha256]

    def is_right(self, sha256: str) -> bool:
        """Whether an object is what its name says, by reading it. A damaged one is thrown away."""
        digest = hashlib.sha256()
        try:
            with self.path(sha256).open("rb", buffering=0) as file:
                _hash(file, digest)
        except OSError:
            return False
        right = digest.hexdigest() == sha256
        if not right:
            self.remove([sha256])
        return right

    def sync(self, names: Iterable[str]) -> None:
        """Bring objects to the disk, with their names."""
        paths = [self.path(sha256) for sha256 in names]
        with disk_full_errors():
            sync_all(paths)
            sync_all(sorted({folder for path in paths for folder in (path.parent, self._whole)}))

    def remove(self, names: Iterable[str]) -> None:
        """Throw objects away."""
        for sha256 in names:
            self.checked.pop(sha256, None)
            self.path(sha256).unlink(missing_ok=True)

    def settled(self, names: Iterable[str]) -> None:
        """Note that what objects look like is written down elsewhere now."""
        with self._lock:
            for sha256 in names:
                self.checked.pop(sha256, None)

    def strays(self, before: float) -> list[str]:
        """The names of objects that came before a time. Unfinished ones of before it are removed."""
        for part in _files(self._parts):
            with self._lock, suppress(FileNotFoundError):
                if part.stem not in self._coming and part.stat().st_mtime < before:
                    part.unlink()
        found = []
        for path in (path for folder in _files(self._whole) for path in _files(folder)):
            with suppress(FileNotFoundError):
                if is_sha256(path.name) and path.stat().st_mtime < before:
                    found.append(path.name)
        return found

    def _part(self, sha256: str) -> Path:
        return self._parts / f"{sha256}{_PART}"

    def check_room(self, needed: int) -> None:
        """Raise SnapshotFullError unless the disk takes so much more."""
        disk = os.statvfs(_there(self._parts))
        if disk.f_bavail * disk.f_frsize - needed < self._reserve:
            raise SnapshotFullError(f"{self._parts} has no room for {needed} bytes more: make some")


def _something_else(sha256: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(f"what came as object {sha256} is something else: it was thrown away")


def _there(folder: Path) -> Path:
    """A folder, or the first above it that is there."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _hash(file: BinaryIO, digest: Hash) -> None:
    while block := file.read(_BLOCK):
        digest.update(block)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
