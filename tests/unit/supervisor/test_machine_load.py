"""What a node says of its machine."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.supervisor.machine_load import MachineSampler, link_speed

Times = namedtuple("Times", "user system idle iowait guest")
Bytes = namedtuple("Bytes", "bytes_recv bytes_sent")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {
        "times": Times(0.0, 0.0, 0.0, 0.0, 0.0),
        "network": {"lo": Bytes(0, 0), "eth0": Bytes(0, 0), "eth1": Bytes(0, 0)},
    }
    monkeypatch.setattr(psutil, "cpu_times", lambda: found["times"])
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_: found["network"])
    return found


def test_rates_are_those_since_the_look_before(counters: dict[str, Any]) -> None:
    machine = MachineSampler()
    machine.sample(100.0)
    counters["times"] = Times(2.0, 1.0, 8.0, 1.0, 2.0)
    counters["network"] = {"lo": Bytes(10**9, 10**9), "eth0": Bytes(1000, 10), "eth1": Bytes(500, 5)}
    found = machine.sample(103.0)
    assert found.cpu == 0.25
    assert (found.network_in, found.network_out) == (500.0, 5.0)


def test_nothing_is_claimed_before_time_has_passed(counters: dict[str, Any]) -> None:
    counters["network"] = {"eth0": Bytes(5000, 5000)}
    found = MachineSampler().sample(1.0)
    assert (found.cpu, found.network_in, found.network_out) == (0.0, 0.0, 0.0)


def test_an_interface_that_goes_is_no_negative_traffic(counters: dict[str, Any]) -> None:
    counters["network"] = {"eth0": Bytes(5000, 5000)}
    machine = MachineSampler()
    machine.sample(1.0)
    counters["network"] = {}
    found = machine.sample(2.0)
    assert (found.network_in, found.network_out) == (0.0, 0.0)


def test_a_link_is_as_fast_as_its_interface_says(monkeypatch: pytest.MonkeyPatch) -> None:
    Address = namedtuple("Address", "address")
    Stats = namedtuple("Stats", "speed")
    monkeypatch.setattr(
        psutil, "net_if_addrs", lambda: {"lo": [Address("127.0.0.1")], "eth0": [Address("10.0.0.7")]}
    )
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"lo": Stats(0), "eth0": Stats(10_000)})
    assert [link_speed(host) for host in ("10.0.0.7", "127.0.0.1", "10.0.0.8")] == [1.25e9, 0.0, 0.0]


def test_what_is_free_for_copies_is_looked_at(tmp_path: Path) -> None:
    assert MachineSampler(tmp_path).sample(0.0).disk_free > 0
    assert MachineSampler(tmp_path / "gone").sample(0.0).disk_free == -1
    assert MachineSampler().sample(0.0).disk_free == -1


def test_a_real_machine_has_memory() -> None:
    found = MachineSampler().sample(0.0)
    assert 0 < found.memory_used < found.memory_total
    assert 0.0 <= found.cpu <= 1.0
