"""``penstock up``: a whole cluster on this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.daemon_options import RetainDays, RetainJobs
from penstock.cli.failing import user_errors
from penstock.cli.local_cluster import (
    BusyError,
    check_room,
    cluster_folder,
    lock_cluster,
    prepare_zookeeper,
    running,
    write_masters,
    zookeeper_servers,
)
from penstock.cli.output import Output
from penstock.cli.sizes import read_memory
from penstock.cli.up_ready import print_cluster, wait_ready
from penstock.daemons import launcher
from penstock.daemons.ending import end_cluster, keeper_folder
from penstock.daemons.keeper import Keeper
from penstock.daemons.layout import PORT, Layout, LayoutOptions, plan, write_layout
from penstock.daemons.processes import OUTPUT
from penstock.daemons.processes_os import OsProcesses
from penstock.errors import PenstockError
from penstock.keyring import open_keyring
from penstock.local_paths import local_path
from penstock.log import home
from penstock.schedule.strategies import check_strategy_name


@user_errors
def up(
    nodes: Annotated[
        int, typer.Option("--nodes", help="How many nodes, each with an address of its own.")
    ] = 3,
    masters: Annotated[int, typer.Option("--masters", help="How many masters; one of them leads.")] = 2,
    zk: Annotated[
        int | None, typer.Option("--zk", metavar="1|3", help="How many ZooKeeper servers; 3 by default.")
    ] = None,
    connect: Annotated[
        str, typer.Option("--connect", metavar="HOST:PORT,…", help="A ZooKeeper that runs already.")
    ] = "",
    cores: Annotated[
        int | None, typer.Option("--cores", help="Cores of each node; all of this machine by default.")
    ] = None,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="What workers of a node may use.")
    ] = "2g",
    racks: Annotated[
        str, typer.Option("--racks", metavar="r1,r2", help="Racks that nodes are in, in turn.")
    ] = "",
    strategy: Annotated[
        str, typer.Option("--strategy", metavar="NAME|MODULE:CLASS", help="Who decides where jobs run.")
    ] = "balanced",
    retain_days: RetainDays = 7.0,
    retain_jobs: RetainJobs = 1000,
    storage: Annotated[
        Path | None,
        typer.Option("--storage", metavar="DIR", help="Logs and jobs; $PENSTOCK_HOME by default."),
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="BASE", help="The first of the ports used.")] = PORT,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it is up.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds it may take to be up.")] = 90.0,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Start a cluster on this machine: ZooKeeper, masters, and nodes on 127.0.0.2, 127.0.0.3, …

    What dies is started again. Ctrl-C ends all of it, workers after their batch; jobs go on with the next
    up. With --detach it runs in the background until penstock down.
    """
    cluster, processes = cluster_folder(), OsProcesses()
    with lock_cluster(cluster):
        if found := running(cluster, processes):
            raise BusyError(f"a cluster is up already ({', '.join(found)}): penstock down ends it")
        wishes = LayoutOptions(
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
        prepare = partial(prepare_zookeeper, wishes, ring.quorum_password)
        layout = plan(wishes, cluster, folder, prepare, started=time.time())
        check_room(layout)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_layout(layout, cluster)
        write_masters(layout, cluster)
        run = _in_background if detach else _in_foreground
        run(layout, cluster, ring.token, timeout, output)


def _in_background(layout: Layout, cluster: Path, token: str, timeout: float, output: Output) -> None:
    processes, folder = OsProcesses(), keeper_folder(cluster)
    environment = {**os.environ, "PENSTOCK_HOME": str(home())}
    command = [sys.executable, "-m", "penstock.daemons.keeper", str(cluster)]
    processes.start(command, folder=folder, environment=environment, cwd=cluster)

    def check() -> None:
        if not processes.alive(folder):
            raise PenstockError(f"the cluster was ended before it was up, see {folder / OUTPUT}")

    try:
        state = wait_ready(layout, token, timeout, check)
    except BaseException:
        processes.signal(folder, signal.SIGKILL)
        end_cluster(layout, cluster, processes, tell=_tell)
        raise
    print_cluster(layout, cluster, state, output)
    _tell(f"it runs in the background, see {folder / OUTPUT}; penstock down ends it")


def _in_foreground(layout: Layout, cluster: Path, token: str, timeout: float, output: Output) -> None:
    environment = {**os.environ, "PENSTOCK_HOME": str(home())}
    keeper = Keeper(layout, cluster, environment, tell=_tell)
    signals = _Signals()
    folder = keeper_folder(cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.joinpath(launcher.RECORD).unlink(missing_ok=True)
    launcher.note(str(folder), "penstock up")
    thread = threading.Thread(target=keeper.run, name="keeper")
    thread.start()
    try:
        state = wait_ready(layout, token, timeout, signals.check)
        print_cluster(layout, cluster, state, output)
        _tell("Ctrl-C ends it")
        signals.stop.wait()
    except _StoppedError:
        pass
    finally:
        keeper.stop()
        thread.join()
        if not signals.left:
            end_cluster(layout, cluster, OsProcesses(), tell=_tell, hurry=lambda: signals.count > 1)
        folder.joinpath(launcher.RECORD).unlink(missing_ok=True)
    _tell("penstock down ends it" if signals.left else "ended; jobs go on with the next penstock up")


class _StoppedError(Exception):
    """A signal came while the cluster was on its way."""


class _Signals:
    """What this process was told: to end everything, or to leave that to ``penstock down``."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.left = False
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._handle)

    def check(self) -> None:
        if self.stop.is_set():
            raise _StoppedError

    def _handle(self, number: int, frame: Any) -> None:  # noqa: ARG002
        self.left = self.left or number == signal.SIGUSR1
        self.count += 1
        self.stop.set()


def _tell(text: str) -> None:
    typer.echo(text, err=True)
