"""What has to be on the disk before something else may be, and the word for a disk that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.snapshots.errors import SnapshotFullError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def room() -> Iterator[None]:
    """Say it plainly when a disk is full: raises SnapshotFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        where = error.filename or "the disk"
        raise SnapshotFullError(f"{where} has no room ({error.strerror}): make some") from error


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file at once by one that only its owner can read, and that a power cut leaves whole."""
    staged = path.with_name(f".{path.name}")
    with room():
        try:
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            staged.replace(path)
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        sync(path.parent)
