"""Wait for new segments in partition folders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# On a network file system, inotify does not report changes by other machines: return after this long anyway.
_INOTIFY_TIMEOUT = 0.05
_POLL_INTERVAL = 0.001


class Watch:
    """Waits for a file to appear in any of several folders, by inotify if available, otherwise by polling.

    Create the watch before listing the folders: a file that appears in between then ends the next wait.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Watch([Path(folder)]) as watch:
    ...     _ = (Path(folder) / "new").write_text("x")
    ...     watch.wait(10)
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._inotify = _inotify(folders)

    def wait(self, timeout: float) -> None:
        """Return when a file may have appeared, or after at most 50 ms."""
        if self._inotify is None:
            time.sleep(min(timeout, _POLL_INTERVAL))
        else:
            self._inotify.read(timeout=max(1, round(min(timeout, _INOTIFY_TIMEOUT) * 1000)))

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _inotify(folders: Sequence[Path]) -> Any:
    try:
        from inotify_simple import INotify, flags
    except ImportError:
        return None
    try:
        inotify = INotify()
    except OSError:
        return None  # the user's limit of inotify instances is reached: poll instead
    try:
        for folder in folders:
            inotify.add_watch(folder, flags.CREATE | flags.MOVED_TO)
    except OSError:
        inotify.close()
        return None
    return inotify
