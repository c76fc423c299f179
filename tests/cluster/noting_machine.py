"""A machine for supervisors of unit tests: no process runs on it, and what is started is noted."""

from __future__ import annotations

from penstock.cluster.supervising import Instance, Start
from penstock.daemons.machine import Sample


class NotingMachine:
    """Both what a supervisor starts processes with and what it samples."""

    def __init__(self) -> None:
        self.started: list[str] = []
        """The jobs of which something was started, in order."""

    def look(self, now: float) -> list[Instance]:
        return []

    def start(self, start: Start, now: float) -> None:
        self.started.append(start.assignment.job)

    def ask_to_end(self, instance: Instance, now: float) -> None:
        return

    def kill(self, instance: Instance, reason: str = "") -> None:
        return

    def count(self, instance: Instance) -> None:
        return

    def figures(self, instance: Instance) -> tuple[float, int, int]:
        return (0.0, 0, 0)

    def sample(self, now: float) -> Sample:
        return Sample(0.0, 0, 0, 0.0, 0.0)
