"""``penstock up`` and ``penstock down``.

Start a complete cluster on this machine, wait until it serves requests, and stop it again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Output, RetainDays, RetainJobs, read_memory
from penstock.errors import PenstockError
from penstock.keyring import KEY_FILE, TOKEN_FILE, open_keyring
from penstock.local.cluster_keeper import Keeper
from penstock.local.cluster_layout import (
    MASTER,
    PORT,
    SUPERVISOR,
    UP_FILE,
    Layout,
    LayoutOptions,
    plan,
    read_layout,
    write_layout,
)
from penstock.local.cluster_shutdown import EndedProcess, end_cluster, keeper_folder
from penstock.local.local_cluster import (
    MASTERS_FILE,
    BusyError,
    check_addresses,
    cluster_folder,
    lock_cluster,
    prepare_zookeeper,
    running,
    token_file,
    write_masters,
    zookeeper_servers,
)
from penstock.local_files import local_path
from penstock.log import home
from penstock.processes import process_launcher
from penstock.processes.process_control import OUTPUT, OsProcesses
from penstock.schedule.placement_strategies import check_strategy_name
from penstock.supervisor.storage_marker import MARKER
from penstock.web.master_client import probe_url

_LOOK_SECONDS = 0.2


def wait_ready(layout: Layout, token: str, timeout: float, check: Callable[[], None]) -> dict[str, Any]:
    """Wait until a master leads and all nodes are registered; return the leader's description of the cluster.

    ``check`` is called repeatedly and may raise. Raises PenstockError when it takes too long.
    """
    deadline = time.monotonic() + timeout
    while True:
        check()
        missing, state = find_missing(layout, token)
        if not missing:
            return state
        if time.monotonic() >= deadline:
            raise PenstockError(
                f"the cluster is not up after {timeout:g} seconds: {missing}. {last_output_lines(layout)}"
            )
        time.sleep(_LOOK_SECONDS)


def find_missing(layout: Layout, token: str) -> tuple[str, dict[str, Any]]:
    """Return what the cluster still lacks, and the leader's description of the cluster."""
    unready = [daemon.name for daemon in layout.of(MASTER) if probe_url(f"{daemon.url}/readyz") is None]
    if unready:
        return f"{', '.join(unready)} cannot serve yet", {}
    url = layout.of(MASTER)[0].url
    cluster, nodes = (
        probe_url(f"{url}/api/v1/cluster", token=token),
        probe_url(f"{url}/api/v1/nodes", token=token),
    )
    if cluster is None or nodes is None or not cluster.content.get("leader"):
        return "no master leads yet", {}
    registered = {node["name"] for node in nodes.content}
    absent = [daemon.name for daemon in layout.of(SUPERVISOR) if daemon.name not in registered]
    if absent:
        return f"{', '.join(absent)} have not registered yet", {}
    return "", cluster.content


def last_output_lines(layout: Layout) -> str:
    """Return the last line of each daemon's output."""
    found = []
    for daemon in layout.daemons:
        path = Path(daemon.folder) / "output.txt"
        try:
            lines = path.read_text(errors="replace").strip().splitlines()
        except OSError:
            continue
        if lines:
            found.append(f"{daemon.name} printed: {lines[-1][:300]}")
    return "\n".join(["", *found]) if found else ""


def print_cluster(layout: Layout, cluster: Path, state: dict[str, Any], output: Output) -> None:
    """Print the addresses and folders of the cluster."""
    leader = state.get("leader", "")
    if output is Output.JSON:
        content = {
            "leader": leader,
            "connect": layout.connect,
            "storage": layout.storage,
            "token_file": str(token_file(cluster)),
            "daemons": [
                {"name": daemon.name, "kind": daemon.kind, "url": daemon.url, "folder": daemon.folder}
                | ({"address": f"{daemon.host}:{daemon.ports[0]}"} if not daemon.url else {})
                for daemon in layout.daemons
            ],
        }
        typer.echo(json.dumps(content))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "address", "", title="cluster")
    for daemon in layout.daemons:
        table.add_row(
            daemon.name,
            daemon.url or f"{daemon.host}:{daemon.ports[0]}",
            "leads" if daemon.name == leader else "",
        )
    console = Console()
    console.print(table)
    console.print(f"token: {token_file(cluster)}", soft_wrap=True, highlight=False)


@user_errors
def up(
    nodes: Annotated[
        int, typer.Option("--nodes", help="Number of nodes, at most 200, each with its own address.")
    ] = 3,
    masters: Annotated[
        int, typer.Option("--masters", help="Number of masters, at most 20; one of them leads.")
    ] = 2,
    zk: Annotated[
        int | None,
        typer.Option(
            "--zk",
            metavar="1|3",
            help="Number of ZooKeeper servers, which cannot change while the cluster has jobs; by default "
            "3, or the previous number.",
        ),
    ] = None,
    connect: Annotated[
        str,
        typer.Option(
            "--connect",
            metavar="HOST:PORT,…",
            help="Addresses of a running ZooKeeper to use instead of starting one.",
        ),
    ] = "",
    cores: Annotated[
        int | None, typer.Option("--cores", help="Cores of each node; by default all cores of this machine.")
    ] = None,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory that the workers of a node may use.")
    ] = "2g",
    racks: Annotated[
        str, typer.Option("--racks", metavar="NAME,…", help="Names of racks, assigned to the nodes in turn.")
    ] = "",
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME|MODULE:CLASS",
            help="The placement strategy of jobs that do not name one.",
        ),
    ] = "balanced",
    retain_days: RetainDays = 7.0,
    retain_jobs: RetainJobs = 1000,
    storage: Annotated[
        Path | None,
        typer.Option("--storage", metavar="DIR", help="Folder for logs and jobs; $PENSTOCK_HOME by default."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="BASE",
            help="The first port: masters from BASE, supervisors from BASE + 20, ZooKeeper from BASE + 40.",
        ),
    ] = PORT,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background: return when the cluster is up.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the cluster to be up.")
    ] = 90.0,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Start a cluster on this machine: ZooKeeper, masters, and nodes on 127.0.0.2, 127.0.0.3, …

    Processes that die are restarted. Ctrl-C stops the cluster, workers after their current batch; jobs resume
    with the next up. With --detach, the cluster runs in the background until penstock down.
    """
    cluster, processes = cluster_folder(), OsProcesses()
    with lock_cluster(cluster):
        if found := running(cluster, processes):
            raise BusyError(f"a cluster is already up ({', '.join(found)}): stop it with penstock down")
        options = LayoutOptions(
            nodes=nodes,
            masters=masters,
            zookeepers=3 if connect else zookeeper_servers(cluster, zk),
            connect=connect,
            port=port,
            cores=cores if cores is not None else os.cpu_count() or 1,
            memory=read_memory(memory),
            racks=tuple(rack for rack in racks.split(",") if rack),
            strategy=check_strategy_name(strategy),
            retain_days=retain_days,
            retain_jobs=retain_jobs,
        )
        folder = local_path("--storage", storage or home())
        ring = open_keyring(cluster, create=True)
        prepare = partial(prepare_zookeeper, options, ring.quorum_password)
        layout = plan(options, cluster, folder, prepare, started=time.time())
        check_addresses(layout)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_layout(layout, cluster)
        write_masters(layout, cluster)
        run = _in_background if detach else _in_foreground
        run(layout, cluster, ring.token, timeout, output)


def _in_background(layout: Layout, cluster: Path, token: str, timeout: float, output: Output) -> None:
    processes, folder = OsProcesses(), keeper_folder(cluster)
    environment = {**os.environ, "PENSTOCK_HOME": str(home())}
    command = [sys.executable, "-m", "penstock.local.cluster_keeper", str(cluster)]
    processes.start(command, folder=folder, environment=environment, cwd=cluster)

    def check() -> None:
        if not processes.alive(folder):
            raise PenstockError(f"the cluster was stopped while it was starting, see {folder / OUTPUT}")

    try:
        state = wait_ready(layout, token, timeout, check)
    except BaseException:
        processes.signal(folder, signal.SIGKILL)
        end_cluster(layout, cluster, processes, tell=_tell)
        raise
    print_cluster(layout, cluster, state, output)
    _tell(f"the cluster runs in the background, see {folder / OUTPUT}; stop it with penstock down")


def _in_foreground(layout: Layout, cluster: Path, token: str, timeout: float, output: Output) -> None:
    environment = {**os.environ, "PENSTOCK_HOME": str(home())}
    keeper = Keeper(layout, cluster, environment, tell=_tell)
    signals = _Signals()
    folder = keeper_folder(cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.joinpath(process_launcher.RECORD).unlink(missing_ok=True)
    process_launcher.write_record(str(folder), "penstock up")
    thread = threading.Thread(target=keeper.run, name="keeper")
    thread.start()
    try:
        state = wait_ready(layout, token, timeout, signals.check)
        print_cluster(layout, cluster, state, output)
        _tell("stop it with Ctrl-C")
        signals.stop.wait()
    except _StoppedError:
        pass
    finally:
        keeper.stop()
        thread.join()
        if not signals.leave_running:
            end_cluster(layout, cluster, OsProcesses(), tell=_tell, hurry=lambda: signals.count > 1)
        folder.joinpath(process_launcher.RECORD).unlink(missing_ok=True)
    _tell(
        "stop it with penstock down"
        if signals.leave_running
        else "stopped; jobs resume with the next penstock up"
    )


class _StoppedError(Exception):
    """A signal arrived while the cluster was starting."""


class _Signals:
    """Handles signals: SIGUSR1 leaves the cluster running for ``penstock down``, any other signal ends it."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.leave_running = False
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._handle)

    def check(self) -> None:
        if self.stop.is_set():
            raise _StoppedError

    def _handle(self, number: int, frame: Any) -> None:  # noqa: ARG002
        self.leave_running = self.leave_running or number == signal.SIGUSR1
        self.count += 1
        self.stop.set()


def _tell(text: str) -> None:
    typer.echo(text, err=True)


_KEEPER_SECONDS = 5.0
_CLAIM_SECONDS = 15.0
_STOP_POLL_SECONDS = 0.05


@user_errors
def down(
    wipe: Annotated[
        bool,
        typer.Option(
            "--wipe",
            help="Also delete the jobs with their data, the key, the data of ZooKeeper and the marker of "
            "the storage. Logs are kept.",
        ),
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Stop the cluster that penstock up has started on this machine, workers after their current batch.

    Jobs resume with the next up, unless --wipe deletes them.
    """
    cluster = cluster_folder()
    done: list[EndedProcess] = []
    if cluster.is_dir():
        processes = OsProcesses()
        kept = _stop_keeper(cluster, processes)
        deadline = time.monotonic() + _CLAIM_SECONDS
        with lock_cluster(cluster, give_up=lambda: _is_past(deadline)):
            # A concurrent ``penstock up`` may have started its keeper in the meantime.
            kept = _stop_keeper(cluster, processes) or kept
            layout = read_layout(cluster)
            done = end_cluster(layout, cluster, processes, tell=_tell)
            done += [EndedProcess("keeper", killed=False)] if kept else []
            keeper_folder(cluster).joinpath(process_launcher.RECORD).unlink(missing_ok=True)
            (cluster / MASTERS_FILE).unlink(missing_ok=True)
            wiped = _wipe(layout, cluster) if wipe else []
    else:
        wiped = []
    if output is Output.JSON:
        ended = [{"name": each.name, "killed": each.killed} for each in done]
        typer.echo(json.dumps({"ended": ended, "wiped": wiped}))
    else:
        _print(done, wiped)


def _is_past(deadline: float) -> bool:
    time.sleep(_STOP_POLL_SECONDS)
    return time.monotonic() >= deadline


def _stop_keeper(cluster: Path, processes: OsProcesses) -> bool:
    """Stop only the keeper, which would otherwise restart the processes that are stopped next."""
    folder = keeper_folder(cluster)
    if not processes.signal(folder, signal.SIGUSR1):
        return False
    deadline = time.monotonic() + _KEEPER_SECONDS
    while processes.alive(folder):
        if time.monotonic() >= deadline:
            processes.signal(folder, signal.SIGKILL)
        time.sleep(_STOP_POLL_SECONDS)
    return True


def _wipe(layout: Layout | None, cluster: Path) -> list[str]:
    """Remove the data of the cluster; return what was removed."""
    storage = Path(layout.storage) if layout else home()
    # With an external ZooKeeper the jobs remain there, and still need the key and their folders.
    external = layout is not None and not layout.embedded
    if external:
        _tell("the jobs and the key are kept, because penstock up did not start their ZooKeeper")
    names = ["masters", "nodes", "up", UP_FILE]
    if not external:
        names += ["zookeeper", KEY_FILE, TOKEN_FILE]
    # A new job must not find the agreements of replicas of an earlier job with its name. The marker goes as
    # well: it reserves the storage for this cluster, and the next cluster has another id.
    jobs = [] if external else [storage / "cluster-jobs", storage / "agreements", storage / MARKER]
    places = [*(cluster / name for name in names), *jobs]
    found = [place for place in places if place.exists()]
    for place in found:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    return [str(place) for place in found]


def _print(done: list[EndedProcess], wiped: list[str]) -> None:
    for each in done:
        typer.echo(f"{each.name}: {'killed' if each.killed else 'ended'}")
    for place in wiped:
        typer.echo(f"{place}: removed")
    if not done:
        typer.echo("no cluster is running", err=True)
