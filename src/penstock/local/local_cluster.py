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
                return f"{host}:{port} is used by another program: end that, or choose other ports by --port"
            return f"{host}:{port}: {error.strerror}"
    return ""


MASTERS_FILE = "masters.json"
_LOCK = "up.lock"


class BusyError(PenstockError):
    """Another command is at work on this cluster."""


def cluster_folder() -> Path:
    """The folder of this user's cluster."""
    return home() / "cluster"


def token_file(cluster: Path) -> Path:
    """Where the token is that opens the cluster to its user."""
    return cluster / TOKEN_FILE


@contextmanager
def lock_cluster(cluster: Path, *, give_up: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Be the only one that brings this cluster up or down. Raises BusyError once ``give_up`` says so."""
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(cluster / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(descriptor):
            if give_up():
                raise BusyError(f"a cluster of {cluster} is up, or on its way: penstock down ends it")
        yield
    finally:
        os.close(descriptor)


def running(cluster: Path, processes: OsProcesses) -> list[str]:
    """Return the names of what runs of a cluster, its keeper among them."""
    names = [folder.name for folder in running_folders(read_layout(cluster), cluster, processes)]
    return names + (["keeper"] if processes.alive(keeper_folder(cluster)) else [])


def write_masters(layout: Layout, cluster: Path) -> None:
    """Write down where the masters are, for all other commands."""
    urls = [daemon.url for daemon in layout.of("master")]
    write_private(cluster / MASTERS_FILE, json.dumps({"urls": urls}) + "\n")


def zookeeper_servers(cluster: Path, wanted: int | None) -> int:
    """Return how many ZooKeeper servers to start: as many as there were. Raises SettingError.

    A server that is new among old ones could win an election without knowing anything, so that what the
    others know would be lost.
    """
    before = len(list((cluster / "zookeeper").glob("*/data/version-2")))
    if before and wanted not in (None, before):
        raise SettingError(
            f"this cluster has {before} ZooKeeper server{'' if before == 1 else 's'} with its jobs: use --zk"
            f" {before}, or penstock down --wipe to begin anew"
        )
    return before or wanted or 3


def prepare_zookeeper(wishes: LayoutOptions, secret: str, number: int, folder: Path) -> Sequence[str]:
    """Write the settings of a ZooKeeper server and return its command line."""
    from penstock.coord.zookeeper_config import ServerAddress, write_server_files
    from penstock.java_runtime import find_java, spark_jars

    addresses = [
        ServerAddress("127.0.0.1", *zookeeper_ports(wishes.port, each))
        for each in range(1, wishes.zookeepers + 1)
    ]
    return write_server_files(folder, number, addresses, secret, java=find_java(), jars=spark_jars())


def check_room(layout: Layout) -> None:
    """Raise SettingError unless every address of a layout is there and free."""
    for daemon in layout.daemons:
        for port in daemon.ports:
            trouble = address_fault(daemon.host, port)
            if trouble:
                raise SettingError(f"{daemon.name} cannot listen: {trouble}")
