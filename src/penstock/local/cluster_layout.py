"""The layout of a cluster on one machine: its daemons, their addresses, their command lines.

Each node has its own loopback address, from 127.0.0.2 on, so that all programs can distinguish nodes.
Everything else is on 127.0.0.1, with ports counted from a base port.
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

_SUPERVISOR_OFFSET, _ZOOKEEPER_OFFSET = 20, 40
"""The offsets from the base port of the ports of supervisors and of ZooKeeper."""
_MOST_MASTERS, _MOST_NODES = 20, 200
_SCHEMA = 1


@dataclass(frozen=True)
class LayoutOptions:
    """The options of ``penstock up`` that determine the layout."""

    nodes: int = 3
    masters: int = 2
    zookeepers: int = 3
    connect: str = ""
    """The servers of a running ZooKeeper; if given, none is started."""
    port: int = PORT
    cores: int = 1
    memory: int = 2 << 30
    racks: tuple[str, ...] = ()
    strategy: str = ""
    """The placement strategy of jobs that do not name one."""
    retain_days: float = 7.0
    """How many days a job is kept after it has ended."""
    retain_jobs: int = 1000
    """How many jobs are kept after they have ended or failed."""


@dataclass(frozen=True)
class Daemon:
    """A process of a cluster that is restarted when it dies."""

    name: str
    kind: str
    argv: tuple[str, ...]
    folder: str
    host: str
    ports: tuple[int, ...]
    """The main port first."""
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
    """The last pid of each daemon and the creation time of that process, by name."""

    def of(self, kind: str) -> tuple[Daemon, ...]:
        """Return the daemons of one kind."""
        return tuple(daemon for daemon in self.daemons if daemon.kind == kind)


ZooKeeperCommand = Callable[[int, Path], Sequence[str]]
"""Returns the command line of the server with a number, which keeps its data in the folder."""


def plan(
    options: LayoutOptions, cluster: Path, storage: Path, zookeeper: ZooKeeperCommand, *, started: float = 0.0
) -> Layout:
    """Return the layout of a cluster. Starts and writes nothing. Raises SettingError."""
    _check(options)
    base = options.port
    servers = 0 if options.connect else options.zookeepers
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
    connect = options.connect or ",".join(f"127.0.0.1:{daemon.ports[0]}" for daemon in daemons)
    common = ("--connect", connect, "--root", ROOT, "--cluster-folder", str(cluster))
    for number in range(1, options.masters + 1):
        name, port = f"master-{number}", base + number - 1
        address = ("--name", name, "--host", "127.0.0.1", "--port", str(port))
        strategy = ("--strategy", options.strategy) if options.strategy else ()
        retention = ("--retain-days", f"{options.retain_days:g}", "--retain-jobs", str(options.retain_jobs))
        daemons.append(
            _daemon(name, MASTER, (*address, *strategy, *retention, *common), cluster, "127.0.0.1", port)
        )
    for number in range(1, options.nodes + 1):
        name, host, port = f"node-{number}", node_host(number), base + _SUPERVISOR_OFFSET
        address = ("--name", name, "--host", host, "--port", str(port))
        capacity = ("--cores", str(options.cores), "--memory", str(options.memory), "--storage", str(storage))
        rack = ("--rack", options.racks[(number - 1) % len(options.racks)]) if options.racks else ()
        daemons.append(_daemon(name, SUPERVISOR, (*address, *capacity, *rack, *common), cluster, host, port))
    return Layout(connect, str(storage), tuple(daemons), embedded=servers > 0, started=started)


def zookeeper_ports(base: int, number: int) -> tuple[int, int, int]:
    """Return the ports of a server: for clients, for its peers, for elections.

    >>> zookeeper_ports(7700, 1), zookeeper_ports(7700, 2)
    ((7740, 7741, 7742), (7743, 7744, 7745))
    """
    first = base + _ZOOKEEPER_OFFSET + 3 * (number - 1)
    return first, first + 1, first + 2


def node_host(number: int) -> str:
    """Return the loopback address of a node.

    >>> node_host(1), node_host(3)
    ('127.0.0.2', '127.0.0.4')
    """
    return f"127.0.0.{number + 1}"


def write_layout(layout: Layout, cluster: Path) -> None:
    """Write ``up.json``, which describes the started processes; ``penstock down`` needs nothing else."""
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(cluster / UP_FILE, json.dumps({"schema": _SCHEMA, **asdict(layout)}, indent=1) + "\n")


def read_layout(cluster: Path) -> Layout | None:
    """Read ``up.json``; None when there is none. Raises SettingError."""
    path = cluster / UP_FILE
    try:
        content = json.loads(path.read_text())
        if content.pop("schema") != _SCHEMA:
            raise SettingError(f"{path} was written by another version of Penstock: use that version")
        parts = [
            Daemon(**{**part, "argv": tuple(part["argv"]), "ports": tuple(part["ports"])})
            for part in content.pop("daemons")
        ]
        return Layout(daemons=tuple(parts), **content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingError(
            f"{path} cannot be read ({error}): end the processes that it names by hand, then remove it"
        ) from error


def penstock_command(*arguments: str) -> tuple[str, ...]:
    """Return the command line that runs this Penstock with the given arguments."""
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


def _check(options: LayoutOptions) -> None:
    if not 1 <= options.nodes <= _MOST_NODES:
        raise SettingError(f"a machine can have 1 to {_MOST_NODES} nodes, not {options.nodes}")
    if not 1 <= options.masters <= _MOST_MASTERS:
        raise SettingError(f"a machine can have 1 to {_MOST_MASTERS} masters, not {options.masters}")
    if not options.connect and options.zookeepers not in (1, 3):
        raise SettingError(f"1 or 3 ZooKeeper servers can be started, not {options.zookeepers}")
    if not 1024 <= options.port <= 65535 - 100:
        raise SettingError(f"the first port must be 1024 to {65535 - 100}, not {options.port}")
    if options.cores < 1:
        raise SettingError(f"a node must have at least 1 core, not {options.cores}")
