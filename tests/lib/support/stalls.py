"""How long the machine stood still: no process got time, or the disk took no write."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_PAUSE = 0.25
_USUAL = 0.5
"""What a pause and a small write to the disk take, at the most, on a machine that runs."""


class Stalls:
    """Measures in a thread how long nothing went on: no process got time, or the disk took no write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stalls"
        self._over = 0.0
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """How long it was up to now, one that lasts included."""
        return self._over + self._late()

    def _late(self) -> float:
        return max(0.0, time.monotonic() - self._began - _USUAL)

    def _measure(self) -> None:
        with self._file.open("wb") as file:
            while not self._stop.wait(_PAUSE):
                file.write(b".")
                file.flush()
                os.fsync(file.fileno())
                self._over += self._late()
                self._began = time.monotonic()
