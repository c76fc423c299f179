"""Runs ZooKeeper servers on this machine from the jars that come with PySpark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from penstock.coord.zookeeper_config import ServerAddress, pick_addresses, write_server_files
from penstock.errors import SettingError
from penstock.java_runtime import find_java, spark_jars
from penstock.keyring import load_or_create_secret
from penstock.local_files import write_private

_ADDRESSES = "servers.json"
_PROCESS = "process.json"
_STOP_SECONDS = 10.0
_SECRET = "quorum.key"  # noqa: S105 - the name of a file


class EmbeddedZooKeeper:
    """One server or three, each a process that outlives the process that started it.

    ``folder`` has everything: the addresses, which never change, the shared secret of three servers, and for
    server N the folder ``server-N`` with its settings, data, log and process record. Any process that opens
    the folder later can stop the servers or restart them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        servers: int = 1,
        hosts: Sequence[str] | None = None,
        ports: Sequence[int] | None = None,
    ) -> None:
        if servers not in (1, 3):
            raise SettingError(f"{servers} ZooKeeper servers: embed one or three")
        hosts = list(hosts) if hosts is not None else ["127.0.0.1"] * servers
        if len(hosts) != servers:
            raise SettingError(f"{len(hosts)} addresses for {servers} ZooKeeper servers: give one for each")
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.addresses = self._addresses(hosts, ports)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect_string(self) -> str:
        """The addresses for clients: ``host:port,host:port,…``."""
        return ",".join(f"{address.host}:{address.client}" for address in self.addresses)

    @property
    def numbers(self) -> range:
        """The numbers of the servers, from 1."""
        return range(1, len(self.addresses) + 1)

    def start(self, *numbers: int) -> None:
        """Start these servers, by default all, unless they are running. :meth:`wait_ready` waits for them."""
        running = self.pids()
        for number in numbers or self.numbers:
            if number not in running:
                self._start(number)

    def wait_ready(self, *numbers: int, timeout: float = 30.0) -> None:
        """Wait until these servers, by default all, serve clients.

        Raises SettingError when a server has ended, or does not serve clients within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        waiting = list(numbers or self.numbers)
        while waiting:
            number = waiting[0]
            if _serves(self.addresses[number - 1]):
                waiting.pop(0)
                continue
            if number not in self.pids():
                raise SettingError(f"ZooKeeper server {number} ended: {self._last_log_line(number)}")
            if time.monotonic() > deadline:
                raise SettingError(
                    f"ZooKeeper server {number} does not serve clients after {timeout:g} seconds:"
                    f" {self._last_log_line(number)}"
                )
            time.sleep(0.05)

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running servers, by number."""
        found = {number: self._process(number) for number in self.numbers}
        return {number: process.pid for number, process in found.items() if process is not None}

    def stop(self, *numbers: int) -> None:
        """Stop these servers, by default all, and wait for their end. Their data is kept."""
        processes = []
        for number in numbers or self.numbers:
            process = self._process(number)
            if process is not None:
                _signal(process, signal.SIGTERM)
                processes.append(process)
        _, alive = psutil.wait_procs(processes, timeout=_STOP_SECONDS)
        for process in alive:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=_STOP_SECONDS)
        for number in numbers or self.numbers:
            self._record(number).unlink(missing_ok=True)
            if number in self._children:
                self._children.pop(number).wait()

    def _addresses(self, hosts: Sequence[str], ports: Sequence[int] | None) -> list[ServerAddress]:
        path = self.folder / _ADDRESSES
        try:
            known = [ServerAddress(**address) for address in json.loads(path.read_text())]
        except FileNotFoundError:
            known = pick_addresses(hosts, ports)
            write_private(path, json.dumps([asdict(address) for address in known]))
            return known
        except (ValueError, TypeError):
            raise SettingError(f"{path} is damaged: delete it, and other ports will be chosen") from None
        same_ports = ports is None or [address.client for address in known] == list(ports)
        if [address.host for address in known] != list(hosts) or not same_ports:
            raise SettingError(f"{self.folder} has ZooKeeper servers with other addresses, see {path}")
        return known

    def _home(self, number: int) -> Path:
        return self.folder / f"server-{number}"

    def _record(self, number: int) -> Path:
        return self._home(number) / _PROCESS

    def _start(self, number: int) -> None:
        home = self._home(number)
        secret = load_or_create_secret(self.folder / _SECRET) if len(self.addresses) > 1 else ""
        command = write_server_files(
            home, number, self.addresses, secret, java=find_java(), jars=spark_jars()
        )
        with (home / "zookeeper.out").open("wb") as out:
            child = subprocess.Popen(
                command,
                cwd=home,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[number] = child
        record = {"pid": child.pid, "created": psutil.Process(child.pid).create_time()}
        write_private(home / _PROCESS, json.dumps(record))

    def _process(self, number: int) -> psutil.Process | None:
        """Return the process of a server if it is running; None if it has ended or its pid was reused."""
        if number in self._children:
            self._children[number].poll()
        try:
            record = json.loads(self._record(number).read_text())
            process = psutil.Process(record["pid"])
            same = abs(process.create_time() - record["created"]) < 1.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, ValueError, KeyError, psutil.NoSuchProcess):
            return None

    def _last_log_line(self, number: int) -> str:
        for name in ("zookeeper.log", "zookeeper.out"):
            path = self._home(number) / name
            lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
            if lines:
                return f"{lines[-1]} (see {path})"
        return f"it printed nothing (see {self._home(number)})"


def _serves(address: ServerAddress) -> bool:
    """Return whether a server has a quorum and answers clients."""
    try:
        with socket.create_connection((address.host, address.client), timeout=2.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"\nMode: " in answer


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
