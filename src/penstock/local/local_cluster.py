"""The cluster of this user on this machine.

Its folder, the lock of ``up`` and ``down``, its ZooKeeper settings, and whether its ports are free. It must
not import the command line.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError, SettingError
from penstock.keyring import TOKEN_FILE
from penstock.local.cluster_layout import Layout, LayoutOptions, read_layout, zookeeper_ports
from penstock.local.cluster_shutdown import keeper_folder, running_folders
from penstock.local_files import try_lock, write_private
from penstock.log import home
from penstock.processes.process_control import OsProcesses


def address_fault(host: str, port: int) -> str:
    """Return why no server can listen at an address; empty when one can."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError as error:
            if error.errno == 99 or "assign" in (error.strerror or ""):
                return (
                    f"this machine has no address {host}. Linux has all of 127.0.0.0/8; on macOS add it:"
                    f" sudo ifconfig lo0 alias {host}"
                )
            if error.errno == 98 or "in use" in (error.strerror or ""):
                return f"{host}:{port} is used by another program: end it, or choose other ports with --port"
            return f"{host}:{port}: {error.strerror}"
    return ""


MASTERS_FILE = "masters.json"
_LOCK = "up.lock"


class BusyError(PenstockError):
    """The cluster is up, or another command is starting or stopping it."""


def cluster_folder() -> Path:
    """Return the folder of this user's cluster."""
    return home() / "cluster"


def token_file(cluster: Path) -> Path:
    """Return the file with the token, which authorizes clients."""
    return cluster / TOKEN_FILE


@contextmanager
def lock_cluster(cluster: Path, *, give_up: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Hold the lock for starting or stopping this cluster. Raises BusyError when ``give_up`` returns true."""
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(cluster / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(descriptor):
            if give_up():
                raise BusyError(f"the cluster in {cluster} is up or starting: stop it with penstock down")
        yield
    finally:
        os.close(descriptor)


def running(cluster: Path, processes: OsProcesses) -> list[str]:
    """Return the names of a cluster's running processes, including its keeper."""
    names = [folder.name for folder in running_folders(read_layout(cluster), cluster, processes)]
    return names + (["keeper"] if processes.alive(keeper_folder(cluster)) else [])


def write_masters(layout: Layout, cluster: Path) -> None:
    """Write the URLs of the masters for other commands."""
    urls = [daemon.url for daemon in layout.of("master")]
    write_private(cluster / MASTERS_FILE, json.dumps({"urls": urls}) + "\n")


def zookeeper_servers(cluster: Path, wanted: int | None) -> int:
    """Return how many ZooKeeper servers to start: as many as have data already. Raises SettingError.

    A new server without data could win an election against old ones, and their data would be lost.
    """
    before = len(list((cluster / "zookeeper").glob("*/data/version-2")))
    if before and wanted not in (None, before):
        raise SettingError(
            f"this cluster has its jobs in {before} ZooKeeper server{'' if before == 1 else 's'}: use --zk"
            f" {before}, or delete the jobs with penstock down --wipe"
        )
    return before or wanted or 3


def prepare_zookeeper(options: LayoutOptions, secret: str, number: int, folder: Path) -> Sequence[str]:
    """Write the configuration of a ZooKeeper server and return its command line."""
    from penstock.coord.zookeeper_config import ServerAddress, write_server_files
    from penstock.java_runtime import find_java, spark_jars

    addresses = [
        ServerAddress("127.0.0.1", *zookeeper_ports(options.port, each))
        for each in range(1, options.zookeepers + 1)
    ]
    return write_server_files(folder, number, addresses, secret, java=find_java(), jars=spark_jars())


def check_addresses(layout: Layout) -> None:
    """Raise SettingError unless every address of a layout exists and is free."""
    for daemon in layout.daemons:
        for port in daemon.ports:
            trouble = address_fault(daemon.host, port)
            if trouble:
                raise SettingError(f"{daemon.name} cannot listen: {trouble}")
