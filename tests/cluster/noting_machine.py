"""A machine for supervisors of unit tests: no process runs on it, and what is started is noted."""

from __future__ import annotations

from penstock.cluster.worker_supervision import ObservedProcess, Start
from penstock.supervisor.machine_load import MachineSample


class NotingMachine:
    """Both what a supervisor starts processes with and what it samples."""

    def __init__(self) -> None:
        self.started: list[str] = []
        """The jobs of which something was started, in order."""

    def look(self, now: float) -> list[ObservedProcess]:
        return []

    def start(self, start: Start, now: float) -> None:
        self.started.append(start.assignment.job)

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        return

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        return

    def count(self, instance: ObservedProcess) -> None:
        return

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        return (0.0, 0, 0)

    def sample(self, now: float) -> MachineSample:
        return MachineSample(0.0, 0, 0, 0.0, 0.0)
