"""Measures the load of this machine: processor, memory, network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class MachineSample:
    """The load of a machine, as the report of its node has it."""

    cpu: float
    """Of all cores together, from 0 to 1."""
    memory_used: int
    memory_total: int
    network_in: float
    """Bytes a second, of all interfaces but the loopback."""
    network_out: float
    disk_free: int = -1
    """Free bytes where backups of other nodes are stored; -1 if not measured."""


class MachineSampler:
    """Measures the load of the machine; rates are averages since the previous sample.

    ``keeps`` is the folder for copies of other nodes' data.
    """

    def __init__(self, keeps: Path | None = None) -> None:
        self._keeps = keeps
        self._at: float | None = None
        self._busy, self._whole = _processor()
        self._received, self._sent = _network()

    def sample(self, now: float) -> MachineSample:
        """Return the current load. ``now`` is in seconds of any clock; it never blocks."""
        busy, whole = _processor()
        received, sent = _network()
        memory = psutil.virtual_memory()
        passed = 0.0 if self._at is None else now - self._at
        found = MachineSample(
            cpu=share(busy - self._busy, whole - self._whole),
            memory_used=memory.total - memory.available,
            memory_total=memory.total,
            network_in=rate(received - self._received, passed),
            network_out=rate(sent - self._sent, passed),
            disk_free=_free(self._keeps),
        )
        self._at = now
        self._busy, self._whole = busy, whole
        self._received, self._sent = received, sent
        return found


def link_speed(host: str) -> float:
    """Return the bandwidth of the interface with an address, in bytes a second; 0 if it is unknown."""
    stats = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses) and name in stats:
            return stats[name].speed * 1e6 / 8
    return 0.0


def _free(folder: Path | None) -> int:
    try:
        return -1 if folder is None else psutil.disk_usage(str(folder)).free
    except OSError:
        return -1


def share(part: float, whole: float) -> float:
    """Return part of a whole, from 0 to 1.

    >>> share(1.0, 4.0), share(0.0, 0.0), share(5.0, 4.0)
    (0.25, 0.0, 1.0)
    """
    return round(min(1.0, max(0.0, part / whole)), 4) if whole > 0 else 0.0


def rate(change: float, seconds: float) -> float:
    """Return a rate a second; 0 if no time has passed, or if the counter was reset.

    >>> rate(300, 3.0), rate(300, 0.0), rate(-5, 1.0)
    (100.0, 0.0, 0.0)
    """
    return max(0.0, change / seconds) if seconds > 0 else 0.0


def _processor() -> tuple[float, float]:
    times = psutil.cpu_times()._asdict()
    # Linux already includes the time of guests in that of users.
    whole = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
    return whole - times["idle"] - times.get("iowait", 0.0), whole


def _network() -> tuple[int, int]:
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    real = [counter for name, counter in counters.items() if name not in ("lo", "lo0")]
    return sum(counter.bytes_recv for counter in real), sum(counter.bytes_sent for counter in real)
