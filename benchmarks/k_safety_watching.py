"""What can be seen of a job from outside: what goes in, what comes out and when, what its processes use."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Self

import psutil

from penstock.log import Log
from penstock.processes.process_control import MARK
from penstock.record import Record

TICK = 0.05
"""Seconds between two appends of a producer."""
_SAMPLE = 0.5


class Background:
    """A thread that works as long as a ``with`` lasts."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Producer(Background):
    """Appends records to a log at a steady rate: number, moment of production and whatever else is wanted."""

    def __init__(self, log: Log, rate: float, record: Callable[[int, float], Record]) -> None:
        super().__init__()
        self.count = 0
        self._log, self._rate, self._record = log, rate, record

    def _work(self) -> None:
        began, made = time.monotonic(), 0
        while not self._stop.wait(TICK):
            due = int((time.monotonic() - began) * self._rate) - made
            now = time.time()
            if due > 0:
                self._log.append([self._record(self.count + n, now) for n in range(due)])
                self.count += due
                made += due


@dataclass(frozen=True)
class Arrival:
    """Output that became visible at once: a committed batch, or some that came in one look."""

    at: float
    records: Sequence[Record]


class Tail(Background):
    """Follows a log of one partition, and notes when records became visible."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.arrivals: list[Arrival] = []
        self.count = 0
        self._log = log

    def _work(self) -> None:
        for records in self._log.tail(0, 0, stop=self._stop.is_set):
            self.arrivals.append(Arrival(time.time(), records))
            self.count += len(records)


@dataclass(frozen=True)
class Usage:
    """What all processes of a cluster have used by a moment."""

    at: float
    cpu: float
    """Seconds of processor time."""
    written: int
    """Bytes to files, as the kernel counts them for each process."""
    network: int
    """Bytes over the loopback interface of the machine, which is the network of these nodes."""


class Meter(Background):
    """Samples what the processes of a cluster use, of those that have ended what they had used last."""

    def __init__(self, cluster: Path) -> None:
        super().__init__()
        self.samples: list[Usage] = []
        self._prefix = f"{MARK}={cluster}/".encode()
        self._ours: dict[tuple[int, float], bool] = {}
        self._used: dict[tuple[int, float], tuple[float, int]] = {}

    def _work(self) -> None:
        while not self._stop.wait(_SAMPLE):
            self.sample()

    def sample(self) -> None:
        """Look at all processes now."""
        for process in psutil.process_iter():
            try:
                name = process.pid, process.create_time()
                if not self._is_ours(name):
                    continue
                with process.oneshot():
                    times, disk = process.cpu_times(), process.io_counters()
                self._used[name] = times.user + times.system, disk.write_bytes
            except psutil.Error:
                continue
        cpu = sum(used for used, _ in self._used.values())
        written = sum(used for _, used in self._used.values())
        self.samples.append(Usage(time.time(), cpu, written, _network()))

    def _is_ours(self, name: tuple[int, float]) -> bool:
        """Whether a process carries the cluster's mark. Environments do not change: one look is enough."""
        if not self._ours.get(name, False):
            try:
                self._ours[name] = self._prefix in Path(f"/proc/{name[0]}/environ").read_bytes()
            except OSError:
                self._ours[name] = False
        return self._ours[name]

    def between(self, start: float, end: float) -> Usage:
        """Return what was used a second between two moments."""
        inside = [usage for usage in self.samples if start <= usage.at <= end]
        first, last = inside[0], inside[-1]
        seconds = last.at - first.at
        return Usage(
            seconds,
            (last.cpu - first.cpu) / seconds,
            int((last.written - first.written) / seconds),
            int((last.network - first.network) / seconds),
        )


def _network() -> int:
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def intervals(moments: Sequence[float], start: float, end: float) -> list[float]:
    """Return the times between moments, of which the first is before ``end`` and the second after ``start``.

    >>> intervals([1.0, 2.0, 4.0, 7.0, 11.0], start=3.0, end=5.0)
    [2.0, 3.0]
    """
    return [after - before for before, after in pairwise(moments) if after > start and before < end]


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and what 99 of 100 are below.

    >>> percentiles([float(n) for n in range(1, 101)])
    (50.5, 99.99)
    """
    return median(values), quantiles(values, n=100)[98]


def faults(numbers: Counter[int], count: int) -> tuple[int, int]:
    """Return how many of the numbers from 0 on are missing, and how many records there are too many.

    >>> faults(Counter([0, 1, 1, 3]), 5)
    (2, 1)
    """
    return sum(number not in numbers for number in range(count)), numbers.total() - len(numbers)
