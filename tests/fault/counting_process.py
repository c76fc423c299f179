"""A process of a test that prints how far it has come, and may be killed at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable


class CountingProcess:
    """A Python process, and the last number that it has printed."""

    def __init__(self, *arguments: str) -> None:
        self.said = -1
        self.process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line before the kill may be cut short, and then says a smaller number.
            if line.endswith("\n"):
                self.said = int(line)

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, and do not wait for that."""
        self.process.kill()

    def wait(self) -> None:
        """Wait until it has ended and all that it said was heard."""
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> None:
        """Kill it."""
        self.kill()
        self.wait()


def check_alive(processes: Iterable[CountingProcess]) -> None:
    """Raise AssertionError when one of them has ended by itself."""
    assert all(process.process.poll() is None for process in processes), "a process failed"
