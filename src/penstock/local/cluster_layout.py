"""A whole cluster on one machine: which daemons there are, where they listen, how each is started.

Nodes have loopback addresses of their own, from 127.0.0.2 on, so that whatever runs on them can tell them
apart. Everything else is on 127.0.0.1, with ports counted from one base.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import SettingError
from penstock.local_files import write_private

PORT = 7700
ROOT = "/penstock"
KINDS = MASTER, SUPERVISOR, ZOOKEEPER = "master", "supervisor", "zookeeper"
UP_FILE = "up.json"

_AGENT, _ZOOKEEPER = 20, 40
"""How far from the base the ports of supervisors and of ZooKeeper are."""
_MOST_MASTERS, _MOST_NODES = 20, 200
_SCHEMA = 1


@dataclass(frozen=True)
class LayoutOptions:
    """What is asked for."""

    nodes: int = 3
    masters: int = 2
    zookeepers: int = 3
    connect: str = ""
    """An ensemble that runs already; then no ZooKeeper is started."""
    port: int = PORT
    cores: int = 1
    memory: int = 2 << 30
    racks: tuple[str, ...] = ()
    strategy: str = ""
    """Who decides where jobs run that do not say."""
    retain_days: float = 7.0
    """How many days a job is kept after it has ended."""
    retain_jobs: int = 1000
    """How many jobs are kept after they have ended or failed."""


@dataclass(frozen=True)
class Daemon:
    """One process of a cluster that is kept alive."""

    name: str
    kind: str
    argv: tuple[str, ...]
    folder: str
    host: str
    ports: tuple[int, ...]
    """The one where it is asked first."""
    url: str = ""


@dataclass(frozen=True)
class Layout:
    """A cluster on this machine."""

    connect: str
    storage: str
    daemons: tuple[Daemon, ...]
    """In the order in which they are started."""
    root: str = ROOT
    embedded: bool = True
    """Whether ZooKeeper is among the daemons."""
    started: float = 0.0
    pids: Mapping[str, Any] = field(default_factory=dict)
    """By name of daemon, the pid it had last and when that process was created; ``keeper`` is among them."""

    def of(self, kind: str) -> tuple[Daemon, ...]:
        """Return the daemons of one kind."""
        return tuple(daemon for daemon in self.daemons if daemon.kind == kind)


ZooKeeperCommand = Callable[[int, Path], Sequence[str]]
"""How server NUMBER is started, which keeps its data in a folder."""


def plan(
    wishes: LayoutOptions, cluster: Path, storage: Path, zookeeper: ZooKeeperCommand, *, started: float = 0.0
) -> Layout:
    """Lay a cluster out. Nothing is started, and nothing is written. Raises SettingError."""
    _check(wishes)
    base = wishes.port
    servers = 0 if wishes.connect else wishes.zookeepers
    daemons = [
        Daemon(
            name=f"zookeeper-{number}",
            kind=ZOOKEEPER,
            argv=tuple(zookeeper(number, cluster / "zookeeper" / str(number))),
            folder=str(cluster / "up" / f"zookeeper-{number}"),
            host="127.0.0.1",
            ports=zookeeper_ports(base, number),
        )
        for number in range(1, servers + 1)
    ]
    connect = wishes.connect or ",".join(f"127.0.0.1:{daemon.ports[0]}" for daemon in daemons)
    where = ("--connect", connect, "--root", ROOT, "--cluster-folder", str(cluster))
    for number in range(1, wishes.masters + 1):
        name, port = f"master-{number}", base + number - 1
        listens = ("--name", name, "--host", "127.0.0.1", "--port", str(port))
        decides = ("--strategy", wishes.strategy) if wishes.strategy else ()
        keeps = ("--retain-days", f"{wishes.retain_days:g}", "--retain-jobs", str(wishes.retain_jobs))
        daemons.append(
            _daemon(name, MASTER, (*listens, *decides, *keeps, *where), cluster, "127.0.0.1", port)
        )
    for number in range(1, wishes.nodes + 1):
        name, host, port = f"node-{number}", node_host(number), base + _AGENT
        listens = ("--name", name, "--host", host, "--port", str(port))
        has = ("--cores", str(wishes.cores), "--memory", str(wishes.memory), "--storage", str(storage))
        rack = ("--rack", wishes.racks[(number - 1) % len(wishes.racks)]) if wishes.racks else ()
        daemons.append(_daemon(name, SUPERVISOR, (*listens, *has, *rack, *where), cluster, host, port))
    return Layout(connect, str(storage), tuple(daemons), embedded=servers > 0, started=started)


def zookeeper_ports(base: int, number: int) -> tuple[int, int, int]:
    """The ports of a server: for clients, for its peers, for elections.

    >>> zookeeper_ports(7700, 1), zookeeper_ports(7700, 2)
    ((7740, 7741, 7742), (7743, 7744, 7745))
    """
    first = base + _ZOOKEEPER + 3 * (number - 1)
    return first, first + 1, first + 2


def node_host(number: int) -> str:
    """The loopback address of a node.

    >>> node_host(1), node_host(3)
    ('127.0.0.2', '127.0.0.4')
    """
    return f"127.0.0.{number + 1}"


def write_layout(layout: Layout, cluster: Path) -> None:
    """Write ``up.json``, which says what was started: whoever ends a cluster needs nothing else."""
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(cluster / UP_FILE, json.dumps({"schema": _SCHEMA, **asdict(layout)}, indent=1) + "\n")


def read_layout(cluster: Path) -> Layout | None:
    """Read ``up.json``; None when there is none. Raises SettingError."""
    path = cluster / UP_FILE
    try:
        content = json.loads(path.read_text())
        if content.pop("schema") != _SCHEMA:
            raise SettingError(f"{path} was written by another version of Penstock: use that one")
        parts = [
            Daemon(**{**part, "argv": tuple(part["argv"]), "ports": tuple(part["ports"])})
            for part in content.pop("daemons")
        ]
        return Layout(daemons=tuple(parts), **content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingError(
            f"{path} cannot be understood ({error}): end what it names by hand, then remove it"
        ) from error


def penstock_command(*arguments: str) -> tuple[str, ...]:
    """How this Penstock is run with some arguments."""
    return (sys.executable, "-m", "penstock.cli.main", *arguments)


def _daemon(name: str, kind: str, arguments: tuple[str, ...], cluster: Path, host: str, port: int) -> Daemon:
    return Daemon(
        name=name,
        kind=kind,
        argv=penstock_command(kind, *arguments),
        folder=str(cluster / "up" / name),
        host=host,
        ports=(port,),
        url=f"http://{host}:{port}",
    )


def _check(wishes: LayoutOptions) -> None:
    if not 1 <= wishes.nodes <= _MOST_NODES:
        raise SettingError(f"a machine has 1 to {_MOST_NODES} nodes, not {wishes.nodes}")
    if not 1 <= wishes.masters <= _MOST_MASTERS:
        raise SettingError(f"a cluster here has 1 to {_MOST_MASTERS} masters, not {wishes.masters}")
    if not wishes.connect and wishes.zookeepers not in (1, 3):
        raise SettingError(f"1 or 3 ZooKeeper servers can be started, not {wishes.zookeepers}")
    if not 1024 <= wishes.port <= 65535 - 100:
        raise SettingError(f"ports are counted from 1024 to {65535 - 100}, not from {wishes.port}")
    if wishes.cores < 1:
        raise SettingError(f"a node must have at least 1 core, not {wishes.cores}")
