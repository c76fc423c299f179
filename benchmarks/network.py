"""Servers with network links of their own on one machine: namespaces and a bridge, limited by ``tc``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from types import TracebackType

from benchmarks.halves import HalfFailedError

_SUBNET = "10.77.86"
_HUB = 254
_BURST = "64kb"
_LATENCY = "200ms"


class Network:
    """Servers 1 to N, each in a namespace, all joined by a bridge in one more, the hub. All go in the end."""

    def __init__(self, servers: int) -> None:
        self._servers = range(1, servers + 1)
        self._mark = f"ps{os.getpid()}"

    def __enter__(self) -> Network:
        _check()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def namespace(self, server: int | None = None) -> str:
        """Return the name of a server's namespace, or of the hub's."""
        return f"{self._mark}-{'hub' if server is None else server}"

    def address(self, server: int | None = None) -> str:
        """Return the address of a server, or of the hub."""
        return f"{_SUBNET}.{_HUB if server is None else server}"

    def limit(self, server: int, megabits: float) -> None:
        """Let no more go to and from a server."""
        for namespace, device in ((self.namespace(server), "eth0"), (self.namespace(), f"port{server}")):
            shape = ["tbf", "rate", f"{megabits:g}mbit", "burst", _BURST, "latency", _LATENCY]
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *shape)

    def cut(self, server: int) -> None:
        """Let nothing go to and from a server any more; connections are not told."""
        _run("ip", "-n", self.namespace(), "link", "set", f"port{server}", "down")

    def heal(self, server: int) -> None:
        """Undo :meth:`cut`."""
        _run("ip", "-n", self.namespace(), "link", "set", f"port{server}", "up")

    def _make(self) -> None:
        hub = self.namespace()
        for namespace in (hub, *map(self.namespace, self._servers)):
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", hub, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", hub, "addr", "add", f"{self.address()}/24", "dev", "bridge0")
        _run("ip", "-n", hub, "link", "set", "bridge0", "up")
        for server in self._servers:
            own = self.namespace(server)
            peer = ["peer", "name", "eth0", "netns", own]
            _run("ip", "-n", hub, "link", "add", f"port{server}", "type", "veth", *peer)
            _run("ip", "-n", hub, "link", "set", f"port{server}", "master", "bridge0", "up")
            _run("ip", "-n", own, "addr", "add", f"{self.address(server)}/24", "dev", "eth0")
            _run("ip", "-n", own, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        """End whatever still runs in the namespaces, which are ours, and remove them with their links."""
        for namespace in (*map(self.namespace, self._servers), self.namespace()):
            with suppress(HalfFailedError):
                for pid in _run("ip", "netns", "pids", namespace).split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _run("ip", "netns", "del", namespace)


def _check() -> None:
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        raise HalfFailedError(f"{' and '.join(missing)} is missing: apt install iproute2")
    if os.geteuid() != 0:
        raise HalfFailedError("network namespaces are made by root: run this benchmark as root")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HalfFailedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
