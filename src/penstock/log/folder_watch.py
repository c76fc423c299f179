"""Waiting for a new segment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# A network file system does not report what other machines do: look again after this long anyway.
_LOOK_AGAIN = 0.05
_PROBE = 0.001


class Watch:
    """Wakes when a file appears in one of some folders: by inotify where there is one, else by time.

    Make the watch first and look at the folders second: what appears in between then ends the next wait.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Watch([Path(folder)]) as watch:
    ...     _ = (Path(folder) / "new").write_text("x")
    ...     watch.wait(10)
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._inotify = _inotify(folders)

    def wait(self, timeout: float) -> None:
        """Return when something may have appeared, and after a twentieth of a second in any case."""
        if self._inotify is None:
            time.sleep(min(timeout, _PROBE))
        else:
            self._inotify.read(timeout=max(1, round(min(timeout, _LOOK_AGAIN) * 1000)))

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
        return None  # the user's limit of watches is reached: probing still works
    try:
        for folder in folders:
            inotify.add_watch(folder, flags.CREATE | flags.MOVED_TO)
    except OSError:
        inotify.close()
        return None
    return inotify
