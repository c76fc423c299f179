"""Shows that the process of a worker lives while something in it takes time, such as the start of Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.daemons.instance import write_pulse
from penstock.logs import get_logger

_log = get_logger(__name__)


class Pulse:
    """A thread that leaves a sign of life in a worker's folder every second, for as long as it is shown.

    It proves that the process gets its share of the processor. That its main loop gets on is what heartbeats
    are for: a start that takes too long is given up in spite of its pulse.
    """

    def __init__(self, folder: Path, every: float = 1.0) -> None:
        self._folder = folder
        self._every = every
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while something takes time; inside of another such context nothing changes."""
        if self._thread is not None:
            yield
            return
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Begin to show it."""
        if self._thread is None:
            self._over = threading.Event()
            self._thread = threading.Thread(target=self._show, args=(self._over,), name="pulse", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Show it no longer."""
        thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join()

    def _show(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                write_pulse(self._folder)
            except OSError as error:  # A full disk, perhaps: it may have room again.
                _log.warning("no sign of life written", reason=str(error))
            over.wait(self._every)
