"""The lock of a partition: which process may remove segment files, and how others notice.

A producer claims the next name of a partition by linking to it, which is safe only if no used name becomes
free again. Retention and compaction free names. They hold the lock exclusively, while producers link under
the shared lock, and they first increment the partition's generation, so that processes with a cached listing
list the folder again. The kernel releases a lock when its process dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import LogError, LogNotFoundError
from penstock.local_files import try_lock

_SHARED_TIMEOUT = 60.0
_EXCLUSIVE_TIMEOUT = 2.0
_RETRY_INTERVAL = 0.001
_READ_ONLY = (errno.EROFS, errno.EACCES)


class PartitionLock:
    """A partition's lock file. Its length is the generation: a sparse file that takes no disk space.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> lock = PartitionLock("orders", Path(folder.name) / "lock")
    >>> with lock.exclusive() as held:
    ...     held.advance()
    >>> lock.generation()
    1
    """

    def __init__(self, log: str, path: Path) -> None:
        self._log = log
        self._path = path
        self._name = str(path)

    def generation(self) -> int:
        """Return the generation: how often names may have been removed."""
        try:
            return os.stat(self._name).st_size  # noqa: PTH116 - half the time of Path.stat
        except FileNotFoundError:
            return 0

    @contextmanager
    def shared(self) -> Iterator[int]:
        """Hold the lock shared, so that no name is removed, and yield the generation."""
        try:
            descriptor = self._open()
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            yield self.generation()  # a log on a read-only file system cannot change
            return
        try:
            self._lock(descriptor, fcntl.LOCK_SH, _SHARED_TIMEOUT)
            yield os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    @contextmanager
    def exclusive(self, timeout: float = _EXCLUSIVE_TIMEOUT) -> Iterator[ExclusiveLock]:
        """Hold the lock exclusively. Raises LogError when others hold it longer than ``timeout`` seconds."""
        descriptor = self._open()
        try:
            self._lock(descriptor, fcntl.LOCK_EX, timeout)
            yield ExclusiveLock(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise LogNotFoundError(
                f"log {self._log!r}: the folder {self._path.parent} no longer exists: was the log deleted?"
            ) from None

    def _lock(self, descriptor: int, kind: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not try_lock(descriptor, kind):
            if time.monotonic() >= deadline:
                raise LogError(
                    f"log {self._log!r}: another process has held {self._path} for {timeout:g} seconds:"
                    " is it suspended, or is its disk not responding?"
                )
            time.sleep(_RETRY_INTERVAL)


class ExclusiveLock:
    """A partition lock held exclusively."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.generation = os.fstat(descriptor).st_size

    def advance(self) -> None:
        """Increment the generation. Call this before removing the first name."""
        self.generation += 1
        os.ftruncate(self._descriptor, self.generation)
