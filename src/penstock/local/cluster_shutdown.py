"""Ends the processes of a cluster on this machine, and no others, in an order that loses no work."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.local.cluster_layout import KINDS, MASTER, SUPERVISOR, ZOOKEEPER, Layout
from penstock.processes.process_control import Processes

KEEPER = "keeper"
WORKER_SECONDS = 30.0
"""Seconds that a worker gets to finish its batch."""
DAEMON_SECONDS = 10.0
_POLL_SECONDS = 0.05
_DRIVER = re.compile(r".+-driver-\d+-\d+")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class EndedProcess:
    """A process that was ended."""

    name: str
    killed: bool
    """Whether it, or a process that it had started, had to be killed."""


def keeper_folder(cluster: Path) -> Path:
    """Return the folder that identifies the keeper process of a cluster."""
    return cluster / "up" / KEEPER


def running_folders(layout: Layout | None, cluster: Path, processes: Processes) -> list[Path]:
    """Return the folders of all running processes of a cluster, except its keeper."""
    known = [Path(daemon.folder) for daemon in layout.daemons] if layout else []
    # ``below`` also finds processes whose folder is not in the layout or no longer exists.
    found = {*(folder for folder in known if processes.alive(folder)), *processes.below(cluster)}
    return sorted(found - {keeper_folder(cluster)})


def end_cluster(
    layout: Layout | None,
    cluster: Path,
    processes: Processes,
    *,
    tell: Tell,
    monotonic: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
    hurry: Callable[[], bool] = lambda: False,
) -> list[EndedProcess]:
    """End all processes but the keeper, which must have ended; return the ended processes, in order.

    Supervisors end first, because they would restart workers, and masters with them, because they would move
    jobs away from nodes that end; then workers, which finish their batch; then ZooKeeper. When ``hurry``
    returns true, processes are killed without waiting.
    """
    stages = _stages(layout, cluster, running_folders(layout, cluster, processes))
    done: list[EndedProcess] = []
    for description, folders, seconds in stages:
        if folders:
            tell(f"ending {description}: {', '.join(folder.name for folder in folders)}")
            done += _end(folders, processes, _WaitLimit(monotonic() + seconds, monotonic, wait, hurry))
    # A process may have been started during the shutdown.
    for folder in running_folders(layout, cluster, processes):
        processes.kill_all(folder)
        done.append(EndedProcess(folder.name, killed=True))
    return done


@dataclass(frozen=True)
class _WaitLimit:
    """How long to wait for processes to end."""

    deadline: float
    monotonic: Callable[[], float]
    wait: Callable[[float], None]
    hurry: Callable[[], bool]

    def is_open(self) -> bool:
        return self.monotonic() < self.deadline and not self.hurry()


def _stages(
    layout: Layout | None, cluster: Path, folders: Sequence[Path]
) -> list[tuple[str, list[Path], float]]:
    kinds = {Path(daemon.folder): daemon.kind for daemon in layout.daemons} if layout else {}
    of_kind = {kind: [folder for folder in folders if kinds.get(folder) == kind] for kind in KINDS}
    workers = [folder for folder in folders if cluster / "nodes" in folder.parents]
    drivers = [folder for folder in workers if _DRIVER.fullmatch(folder.name)]
    return [
        ("supervisors and masters", [*of_kind[SUPERVISOR], *of_kind[MASTER]], DAEMON_SECONDS),
        # A driver that lost its executors could not finish its batch.
        ("workers, after their batch", drivers, WORKER_SECONDS),
        ("executors", [folder for folder in workers if folder not in drivers], DAEMON_SECONDS),
        ("ZooKeeper", of_kind[ZOOKEEPER], DAEMON_SECONDS),
    ]


def _end(folders: Sequence[Path], processes: Processes, limit: _WaitLimit) -> list[EndedProcess]:
    for folder in folders:
        processes.signal(folder, signal.SIGTERM)
        processes.signal(folder, signal.SIGCONT)  # A stopped process does not receive SIGTERM.
    while limit.is_open() and any(processes.alive(folder) for folder in folders):
        limit.wait(_POLL_SECONDS)
    return [EndedProcess(folder.name, killed=processes.kill_all(folder) > 0) for folder in folders]
