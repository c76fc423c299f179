"""The lock of a partition: which process may remove segment files, and how others notice.

A producer claims the next name of a partition by linking to it, which is safe as long as no name is ever free
again. Retention and compaction free names. They do so behind an exclusive lock, while every producer links
behind a shared one; and they raise the partition's generation first, so that whoever remembers names from
before looks at the folder again. The kernel lets go of a lock when its process dies.
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

_PATIENCE = 60.0
_UPKEEP_PATIENCE = 2.0
_PAUSE = 0.001
_READ_ONLY = (errno.EROFS, errno.EACCES)


class PartitionLock:
    """A partition's lock file. Its length is the generation, and costs no space on the disk.

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
        """How often names may have been taken away."""
        try:
            return os.stat(self._name).st_size  # noqa: PTH116 - half the time of Path.stat
        except FileNotFoundError:
            return 0

    @contextmanager
    def shared(self) -> Iterator[int]:
        """Keep all names as they are for a moment; gives the generation."""
        try:
            descriptor = self._open()
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            yield self.generation()  # a log on a read-only file system cannot change
            return
        try:
            self._lock(descriptor, fcntl.LOCK_SH, _PATIENCE)
            yield os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    @contextmanager
    def exclusive(self, patience: float = _UPKEEP_PATIENCE) -> Iterator[ExclusiveLock]:
        """Hold the lock exclusively. Raises LogError when others hold it longer than ``patience`` seconds."""
        descriptor = self._open()
        try:
            self._lock(descriptor, fcntl.LOCK_EX, patience)
            yield ExclusiveLock(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise LogNotFoundError(
                f"log {self._log!r}: the folder {self._path.parent} is gone: has the log been deleted?"
            ) from None

    def _lock(self, descriptor: int, kind: int, patience: float) -> None:
        deadline = time.monotonic() + patience
        while not try_lock(descriptor, kind):
            if time.monotonic() >= deadline:
                raise LogError(
                    f"log {self._log!r}: another process has held {self._path} for {patience:g} seconds:"
                    " is it stopped, or does its disk hang?"
                )
            time.sleep(_PAUSE)


class ExclusiveLock:
    """A lock that is held exclusively."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.generation = os.fstat(descriptor).st_size

    def advance(self) -> None:
        """Tell other processes that names will be removed. Call it before the first one is."""
        self.generation += 1
        os.ftruncate(self._descriptor, self.generation)
