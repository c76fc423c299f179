"""``penstock doctor``.

Check Java, PySpark, ports, disk, ZooKeeper, clocks and versions, and advise what to do about each problem.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli.command_errors import FAILED as EXIT_FAILED
from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Output
from penstock.errors import SettingError
from penstock.java_runtime import archive_folder, check_java, find_archive, find_java, spark_jars
from penstock.keyring import KEY_FILE, open_keyring
from penstock.local.cluster_layout import MASTER, PORT, Layout, node_host, read_layout, zookeeper_ports
from penstock.local.local_cluster import address_fault, cluster_folder, running, token_file
from penstock.local_files import local_path
from penstock.log import home
from penstock.processes.process_control import OsProcesses
from penstock.web.master_client import probe_url

OK, WARNING, FAILED = "ok", "warning", "failed"

_OLDEST_PYTHON = (3, 11)
_LEAST_DISK, _GOOD_DISK = 1 << 30, 5 << 30
_LEAST_MEMORY, _GOOD_MEMORY = 1 << 30, 3 << 30
_LEAST_FILES, _GOOD_FILES = 1024, 4096
_GOOD_SKEW, _MOST_SKEW = 2.0, 30.0
_OLDEST_REPORT = 10.0
"""Maximum age of a node's last report in seconds: nodes report more often."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    status: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class DoctorContext:
    """What the checks examine: folders, ports, addresses."""

    cluster: Path
    storage: Path
    port: int
    layout: Layout | None = None
    """The settings of the last cluster that was started on this machine, if any."""
    connect: str = ""

    @cached_property
    def running(self) -> bool:
        """Return whether a cluster runs on this machine."""
        return bool(running(self.cluster, OsProcesses()))

    @cached_property
    def masters(self) -> list[str]:
        """Return the URLs of the masters of the cluster that runs on this machine."""
        known = self.layout if self.layout and self.running else None
        return [daemon.url for daemon in known.of(MASTER)] if known else []

    @cached_property
    def servers(self) -> list[tuple[str, int]]:
        """Return the addresses of the ZooKeeper servers to check."""
        connect = self.connect or (self.layout.connect if self.layout and self.running else "")
        return read_servers(connect)

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster that runs on this machine, as a master sees them."""
        return self.query_masters("/api/v1/nodes") or []

    def query_masters(self, path: str) -> Any:
        """Return the first answer of a master to a GET request; None when no master answers."""
        try:
            token = open_keyring(self.cluster).token
        except SettingError:
            return None
        answers = (probe_url(url + path, token=token) for url in self.masters)
        return next((answer.content for answer in answers if answer is not None), None)


def read_servers(connect: str) -> list[tuple[str, int]]:
    """Read the addresses of ZooKeeper servers. Raises SettingError.

    >>> read_servers("zk1:2181,zk2"), read_servers("")
    ([('zk1', 2181), ('zk2', 2181)], [])
    """
    found = []
    for part in connect.split(","):
        host, _, port = part.strip().partition(":")
        if host:
            if port and not port.isdigit():
                raise SettingError(f"{part!r} is not the address of a ZooKeeper server: write HOST:PORT")
            found.append((host, int(port or 2181)))
    return found


def check_python(_: DoctorContext) -> Finding:
    """Check the version of Python."""
    found = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info) >= _OLDEST_PYTHON:
        return Finding(OK, found)
    return Finding(FAILED, found, "use Python 3.11 or later")


def check_java_version(_: DoctorContext) -> Finding:
    """Check that there is a Java runtime that can run Spark and ZooKeeper."""
    try:
        check_java()
        return Finding(OK, str(find_java()))
    except (SettingError, OSError) as error:
        return Finding(FAILED, str(error), "install a Java runtime of version 17 or later, or set JAVA_HOME")


def check_archive(_: DoctorContext) -> Finding:
    """Check that Spark starts from an archive of classes. A missing archive is not an error."""
    try:
        found = find_archive(archive_folder())
    except SettingError as error:
        return Finding(WARNING, str(error), "see the other checks")
    if found is None:
        return Finding(OK, "none", "run penstock prepare to create one, so that Spark starts faster")
    return Finding(OK, str(found))


def check_pyspark(_: DoctorContext) -> Finding:
    """Check that PySpark has a supported version and its jars, including that of ZooKeeper."""
    from importlib.metadata import PackageNotFoundError, requires, version

    from packaging.requirements import Requirement

    allowed = {each.name: each for each in map(Requirement, requires("penstock") or ())}["pyspark"]
    advice = f"pip install '{allowed}'"
    try:
        jars = spark_jars()
        found = version("pyspark")
    except (SettingError, PackageNotFoundError) as error:
        return Finding(FAILED, str(error), advice)
    if not list(jars.glob("zookeeper-[0-9]*.jar")):
        return Finding(FAILED, f"{found}, without ZooKeeper's jar in {jars}", "reinstall PySpark")
    if found not in allowed.specifier:
        return Finding(WARNING, f"{found}, but Penstock requires {allowed.specifier}", advice)
    return Finding(OK, found)


def check_loopback(_: DoctorContext) -> Finding:
    """Check that each node can have its own loopback address."""
    trouble = address_fault(node_host(1), 0)
    if trouble:
        return Finding(FAILED, trouble, "add the addresses, or start each supervisor on a separate machine")
    return Finding(OK, f"{node_host(1)} and the addresses after it can be used")


def check_ports(context: DoctorContext) -> Finding:
    """Check that the ports of a cluster are free."""
    if context.running:
        return Finding(OK, "in use by the cluster that runs")
    wanted = [context.port, context.port + 1]
    wanted += [port for number in (1, 2, 3) for port in zookeeper_ports(context.port, number)]
    taken = [port for port in wanted if address_fault("127.0.0.1", port)]
    if taken:
        return Finding(
            FAILED,
            f"in use: {', '.join(map(str, taken))}",
            "stop the programs that use them, or choose other ports with up --port",
        )
    return Finding(OK, f"free: {', '.join(map(str, wanted))}")


def check_storage(context: DoctorContext) -> Finding:
    """Check that the storage can be written and supports hard links, which exactly-once commits need."""
    from tempfile import TemporaryDirectory

    folder = _existing(context.storage)
    try:
        with TemporaryDirectory(prefix=".doctor-", dir=folder) as place:
            first, second = Path(place, "first"), Path(place, "second")
            first.write_bytes(b"x")
            os.link(first, second)
    except OSError as error:
        return Finding(
            FAILED, f"{folder}: {error.strerror}", "choose a writable folder that supports hard links"
        )
    return Finding(OK, f"{context.storage} can be written")


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def check_disk(context: DoctorContext) -> Finding:
    """Check the free space on the disk."""
    place = _existing(context.storage)
    free = shutil.disk_usage(place).free
    status = FAILED if free < _LEAST_DISK else WARNING if free < _GOOD_DISK else OK
    advice = "" if status == OK else "free disk space, or choose another folder with up --storage"
    return Finding(status, f"{free / (1 << 30):.1f} GiB free in {place}", advice)


def check_memory(_: DoctorContext) -> Finding:
    """Check that there is enough memory for one or two workers."""
    import psutil

    free = psutil.virtual_memory().available
    status = FAILED if free < _LEAST_MEMORY else WARNING if free < _GOOD_MEMORY else OK
    advice = (
        "" if status == OK else "a driver takes about 1 GiB, a ZooKeeper server 0.1 GiB: stop other programs"
    )
    return Finding(status, f"{free / (1 << 30):.1f} GiB free", advice)


def check_files(_: DoctorContext) -> Finding:
    """Check that processes may open as many files as Spark needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    status = OK if unlimited or soft >= _GOOD_FILES else WARNING if soft >= _LEAST_FILES else FAILED
    text = "no limit" if unlimited else f"{soft} open files"
    raised = f"ulimit -n {_GOOD_FILES}" + (
        "" if hard >= _GOOD_FILES or hard < 0 else " (as the administrator)"
    )
    return Finding(status, text, "" if status == OK else raised)


def check_key(context: DoctorContext) -> Finding:
    """Check that the key of the cluster exists and only its owner can read it."""
    path = context.cluster / KEY_FILE
    if not path.exists():
        return Finding(OK, "none yet: penstock up creates one")
    try:
        ring = open_keyring(context.cluster)
    except (SettingError, OSError) as error:
        return Finding(FAILED, str(error), f"chmod 600 {path}, or copy the key from another node")
    token = token_file(context.cluster)
    if token.exists() and token.stat().st_mode & 0o077:
        return Finding(FAILED, f"{token} can be read by others", f"chmod 600 {token}")
    if token.exists() and token.read_text().strip() != ring.token:
        return Finding(
            WARNING,
            f"{token} does not belong to this key",
            f"remove {token}: the next penstock up writes it again",
        )
    return Finding(OK, f"{path}, readable by its owner only")


def check_zookeeper(context: DoctorContext) -> Finding:
    """Check that ZooKeeper answers and has a quorum."""
    if not context.servers:
        return Finding(OK, "none to check: penstock up starts its own")
    modes = {f"{host}:{port}": zookeeper_mode(host, port) for host, port in context.servers}
    text = ", ".join(f"{server} {mode}" for server, mode in modes.items())
    silent = [server for server, mode in modes.items() if mode == "does not answer"]
    if 2 * len(silent) >= len(modes):
        return Finding(FAILED, text, "start the servers, or correct --connect: more than half must run")
    return Finding(WARNING if silent else OK, text, f"start {', '.join(silent)}" if silent else "")


def zookeeper_mode(host: str, port: int) -> str:
    """Return the mode that a ZooKeeper server reports: leader, follower or standalone."""
    try:
        with socket.create_connection((host, port), timeout=2.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return "does not answer"
    mode = next(
        (line[6:] for line in answer.decode(errors="replace").splitlines() if line[:6] == "Mode: "), ""
    )
    if mode:
        return f"({mode})"
    # A server can be configured to reject this command; whether it has a quorum is then unknown.
    return "(without a quorum)" if b"not currently serving" in answer else "(answers)"


def check_masters(context: DoctorContext) -> Finding:
    """Check that masters answer and one of them leads."""
    if not context.masters:
        return Finding(OK, "no cluster runs on this machine")
    silent = [url for url in context.masters if probe_url(f"{url}/livez") is None]
    if len(silent) == len(context.masters):
        return Finding(FAILED, "none answers", f"see {context.cluster / 'up'}/master-1/output.txt")
    state = context.query_masters("/api/v1/cluster") or {}
    if not state.get("leader"):
        return Finding(FAILED, "no master leads", "check ZooKeeper first: masters need it to elect a leader")
    status, advice = (WARNING, f"{', '.join(silent)} does not answer") if silent else (OK, "")
    return Finding(status, f"{state['leader']} leads", advice)


def check_clock(context: DoctorContext) -> Finding:
    """Check that the clock goes forward and agrees with those of the nodes."""
    before, first = time.monotonic(), time.time()
    if time.monotonic() < before or time.time() < first - 1.0 or first < 1_700_000_000:
        return Finding(FAILED, "the clock runs backwards or is years slow", "set it, for example by NTP")
    skews = [_skew(node["report"]["at"], time.time()) for node in context.nodes if node.get("report")]
    if not skews:
        return Finding(OK, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    most = max(skews)
    status = FAILED if most > _MOST_SKEW else WARNING if most > _GOOD_SKEW else OK
    text = f"differs from the nodes' clocks by {most:.1f} s"
    return Finding(status, text, "" if status == OK else "set the clocks by NTP")


def _skew(reported: float, now: float) -> float:
    """Return the minimum difference to a node's clock that the time of its last report proves."""
    return max(0.0, reported - now, now - reported - _OLDEST_REPORT)


def check_versions(context: DoctorContext) -> Finding:
    """Check that all processes of the cluster have this version."""
    if not context.masters:
        return Finding(OK, __version__)
    masters = (context.query_masters("/api/v1/cluster") or {}).get("masters", [])
    others = sorted(
        f"{each['name']} {each['version']}"
        for each in [*masters, *context.nodes]
        if each.get("version") != __version__
    )
    if others:
        return Finding(
            WARNING, f"{__version__} here, but {', '.join(others)}", "restart them with the new version"
        )
    return Finding(OK, f"{__version__} everywhere")


CHECKS: tuple[tuple[str, Callable[[DoctorContext], Finding]], ...] = (
    ("python", check_python),
    ("java", check_java_version),
    ("pyspark", check_pyspark),
    ("archive of classes", check_archive),
    ("memory", check_memory),
    ("open files", check_files),
    ("storage", check_storage),
    ("disk", check_disk),
    ("loopback", check_loopback),
    ("ports", check_ports),
    ("key", check_key),
    ("zookeeper", check_zookeeper),
    ("masters", check_masters),
    ("clock", check_clock),
    ("versions", check_versions),
)
"""The checks in the order of output: a failed check may be the cause of later failures."""


_COLOURS = {OK: "green", FAILED: "red"}


@user_errors
def doctor(
    connect: Annotated[
        str, typer.Option("--connect", metavar="HOST:PORT,…", help="Addresses of a ZooKeeper to check.")
    ] = "",
    storage: Annotated[
        Path | None, typer.Option("--storage", metavar="DIR", help="The folder of logs and jobs.")
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="BASE", help="The first port to use.")] = PORT,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Check Java, PySpark, ports, disk, ZooKeeper, clocks and versions.

    Exit codes: 0 a cluster can run here, perhaps with warnings; 1 a problem must be solved first.
    """
    cluster = cluster_folder()
    layout = read_layout(cluster)
    kept = Path(layout.storage) if layout else home()
    context = DoctorContext(cluster, local_path("--storage", storage or kept), port, layout, connect)
    findings = [(name, check(context)) for name, check in CHECKS]
    if output is Output.JSON:
        content = [
            {"check": name, "status": found.status, "found": found.text, "advice": found.advice}
            for name, found in findings
        ]
        typer.echo(json.dumps(content))
    else:
        _print(findings)
    if any(found.status == FAILED for _, found in findings):
        raise typer.Exit(EXIT_FAILED)


def _print(findings: list[tuple[str, Finding]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "", "found", "what to do")
    for name, found in findings:
        colour = _COLOURS.get(found.status, "yellow")
        table.add_row(name, f"[{colour}]{found.status}[/]", escape(found.text), escape(found.advice))
    Console().print(table)
