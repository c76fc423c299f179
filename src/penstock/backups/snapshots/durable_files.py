"""Writes files durably, and reports a full disk as SnapshotFullError."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from penstock.backups.snapshots.snapshot_errors import SnapshotFullError
from penstock.local_files import sync

_SYNC_THREADS = 8
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_full_errors() -> Iterator[None]:
    """Convert disk-full errors to SnapshotFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        where = error.filename or "the disk"
        raise SnapshotFullError(f"{where}: the disk is full ({error.strerror}): free some space") from error


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, accessible only to their owner."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_all(paths: Sequence[Path]) -> None:
    """Flush files or folders to disk, in no particular order."""
    if len(paths) <= _SYNC_THREADS:
        for path in paths:
            sync(path)
        return
    # Concurrent fsyncs share a write of the file system's journal: for a thousand small files that is twenty
    # times faster than one after the other.
    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="sync") as threads:
        for _ in threads.map(sync, paths):
            pass


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably by one that only its owner can read."""
    staged = path.with_name(f".{path.name}")
    with disk_full_errors():
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
