"""Bounds on time that hold on a machine that runs: what it stands still for meanwhile is not counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LOOK = 0.05
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


def within(seconds: float, condition: Callable[[], T | None], what: str, folder: Path) -> T:
    """Wait until something is so that is promised to be so in time; return what was found.

    The folder is on the disk whose stalls are not counted.
    """
    began = time.monotonic()
    with Stalls(folder) as stalls:
        while not (found := condition()):
            passed = time.monotonic() - began
            stalled = stalls.seconds
            assert passed - stalled < seconds, (
                f"not within {seconds:.0f} s: {what}, {passed:.1f} s with {stalled:.1f} s of stalls"
            )
            time.sleep(_LOOK)
    return found
