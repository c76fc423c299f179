"""A thread that calls watchers and listeners, so that nobody who has news must wait for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger(__name__)


class Notifier:
    """Calls functions one after the other, in the order in which they were posted, in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Have a function called soon; returns at once."""
        self._calls.put(call)

    def close(self, timeout: float) -> None:
        """Call what was posted before, then end; waits for that no longer than ``timeout``."""
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _log.exception("a watcher or a listener of the store raised")
