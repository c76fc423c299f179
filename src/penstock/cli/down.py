"""``penstock down``: ends exactly what ``penstock up`` has started."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failing import user_errors
from penstock.cli.local_cluster import MASTERS_FILE, cluster_folder, lock_cluster
from penstock.cli.output import Output
from penstock.daemons import launcher
from penstock.daemons.ending import EndedProcess, end_cluster, keeper_folder
from penstock.daemons.layout import UP_FILE, Layout, read_layout
from penstock.daemons.processes_os import OsProcesses
from penstock.daemons.storage_marker import MARKER
from penstock.keyring import KEY_FILE, TOKEN_FILE
from penstock.log import home

_KEEPER_SECONDS = 5.0
_CLAIM_SECONDS = 15.0
_STOP_POLL_SECONDS = 0.05


@user_errors
def down(
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Forget the jobs and all they have done. Logs stay.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """End the cluster that penstock up has started on this machine: workers after their batch.

    Jobs go on with the next up, unless --wipe makes the cluster forget them.
    """
    cluster = cluster_folder()
    done: list[EndedProcess] = []
    if cluster.is_dir():
        processes = OsProcesses()
        kept = _stop_keeper(cluster, processes)
        deadline = time.monotonic() + _CLAIM_SECONDS
        with lock_cluster(cluster, give_up=lambda: _late(deadline)):
            # The keeper of an up that was on its way may have come since.
            kept = _stop_keeper(cluster, processes) or kept
            layout = read_layout(cluster)
            done = end_cluster(layout, cluster, processes, tell=_tell)
            done += [EndedProcess("keeper", killed=False)] if kept else []
            keeper_folder(cluster).joinpath(launcher.RECORD).unlink(missing_ok=True)
            (cluster / MASTERS_FILE).unlink(missing_ok=True)
            wiped = _wipe(layout, cluster) if wipe else []
    else:
        wiped = []
    if output is Output.JSON:
        ended = [{"name": each.name, "killed": each.killed} for each in done]
        typer.echo(json.dumps({"ended": ended, "wiped": wiped}))
    else:
        _print(done, wiped)


def _late(deadline: float) -> bool:
    time.sleep(_STOP_POLL_SECONDS)
    return time.monotonic() >= deadline


def _stop_keeper(cluster: Path, processes: OsProcesses) -> bool:
    """Have the keeper leave without ending anything; otherwise it would start again what is ended."""
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
    """Remove what the cluster knows; return what was removed."""
    storage = Path(layout.storage) if layout else home()
    # The jobs are in somebody else's ZooKeeper then, and need their key and their folders.
    external = layout is not None and not layout.embedded
    if external:
        _tell("jobs and the key stay: they belong to a ZooKeeper that Penstock does not run")
    names = ["masters", "nodes", "up", UP_FILE]
    if not external:
        names += ["zookeeper", KEY_FILE, TOKEN_FILE]
    # A job that is submitted anew must not find what replicas before it have agreed on.
    # The next cluster has another id, and the storage is to be its own.
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
        typer.echo("nothing runs", err=True)


def _tell(text: str) -> None:
    typer.echo(text, err=True)
