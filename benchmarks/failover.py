"""How long a cluster on this machine takes to get over a death, and a job stands still for an update.

One job with continuous input runs all the time. A pause is the longest time between two of its committed
batches, from the fault until the new worker has done some.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.halves import HalfFailedError
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.log import Log, log_folder
from penstock.processes.process_control import OsProcesses
from penstock.record import Record

DEADLINE = 180.0
JOB = """
import penstock as ps

job = ps.Job("steady")
source = job.source("in", ps.LogSource("steady-in"))
by_key = job.task("by_key", lambda r: (r.value % {keys}, r.value))
source >> by_key >> job.task("count", ps.Count()) >> job.sink("out", ps.LogSink("steady-out"))
"""


class LocalCluster:
    """A cluster that ``penstock up`` has started, and the way to break it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "cluster"
        self._processes = OsProcesses()
        self._environment = {**os.environ, "PENSTOCK_HOME": str(home)}

    def penstock(self, *arguments: str) -> str:
        """Run a command."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        if done.returncode:
            raise HalfFailedError(f"penstock {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def ask(self, *arguments: str) -> Any:
        """Run a command and read its answer."""
        return json.loads(self.penstock(*arguments, "-o", "json"))

    def daemon(self, name: str) -> Path:
        """Return the folder of a daemon's process."""
        daemons = json.loads((self.folder / "up.json").read_text())["daemons"]
        return Path(next(daemon["folder"] for daemon in daemons if daemon["name"] == name))

    def kill(self, folder: Path) -> None:
        """Kill a process with all of its family."""
        self._processes.kill_all(folder)

    def signal(self, folder: Path, number: int) -> None:
        """Send a signal to a process."""
        self._processes.signal(folder, number)

    @property
    def keeper(self) -> Path:
        """The folder of the process that starts dead daemons again."""
        return self.folder / "up" / "keeper"

    def workers(self, node: str = "*") -> list[Path]:
        """Return the folders of workers that live."""
        folders = self.folder.glob(f"nodes/{node}/instances/steady-driver-*")
        return [folder for folder in sorted(folders) if self._processes.alive(folder)]


class Commits:
    """When batches of the job were committed, watched from outside."""

    def __init__(self, home: Path) -> None:
        self._base = home / "cluster-jobs" / "steady"
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for ledger in self._base.glob("*/ledger"):
                try:
                    entries = [entry for entry in os.scandir(ledger) if entry.name.endswith(".json")]
                    times = {int(entry.name[:-5]): entry.stat().st_mtime for entry in entries}
                except OSError:
                    continue
                for batch, at in times.items():
                    self._seen.setdefault(batch, at)

    def since(self, moment: float) -> list[float]:
        """Return the times of commits from a moment on, and the last one before it."""
        times = sorted(self._seen.values())
        before = [at for at in times if at <= moment]
        return [*before[-1:], *(at for at in times if at > moment)]

    def longest(self, moment: float) -> float:
        """Return the longest time between two commits since a moment."""
        return max((after - before for before, after in pairwise(self.since(moment))), default=0.0)

    def __enter__(self) -> Commits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def fed(home: Path) -> Iterator[None]:
    """Append to the job's log all the time."""
    log = Log.create(log_folder("steady-in", home))
    stop = threading.Event()

    def feed() -> None:
        number = 0
        while not stop.wait(0.05):
            log.append([Record(None, number + n) for n in range(100)])
            number += 100

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def wait(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise HalfFailedError(f"not within {DEADLINE:.0f} s: {what}")
        time.sleep(0.05)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Bring a cluster up, break it in three ways, update its job, and measure."""
    del sizes  # There is no smaller form: most of it is Spark's start.
    cluster = LocalCluster(work / "home")
    cluster.penstock("up", "--nodes", "3", "--masters", "2", "--zk", "3", "--detach")
    try:
        with fed(cluster.home), Commits(cluster.home) as commits:
            file = work / "steady.py"
            file.write_text(JOB.format(keys=50))
            cluster.penstock("submit", str(file), "--memory", "1g", "--wait")
            began = time.time()
            wait(lambda: len(commits.since(began)) > 20, "twenty batches")
            usual = median(after - before for before, after in pairwise(commits.since(began)))
            return [
                _leader(cluster),
                _pause("worker killed", _kill_worker, cluster, commits, usual, at_most=None),
                _pause("node killed", _kill_node, cluster, commits, usual, at_most=60.0),
                _pause("code updated", lambda c: _update(c, file), cluster, commits, usual, at_most=5.0),
            ]
    finally:
        cluster.penstock("down")


def _leader(cluster: LocalCluster) -> Row:
    state = cluster.ask("status")
    began = time.monotonic()
    cluster.kill(cluster.daemon(state["leader"]))
    wait(lambda: cluster.ask("status")["epoch"] > state["epoch"], "another epoch")
    seconds = time.monotonic() - began
    return Row("leader killed, another leads", "", "s", seconds, None, None, "at most 10 s", seconds <= 10.0)


def _kill_worker(cluster: LocalCluster) -> None:
    [worker] = cluster.workers()
    cluster.signal(worker, signal.SIGKILL)


def _kill_node(cluster: LocalCluster) -> None:
    [worker] = cluster.workers()
    node = worker.parent.parent.name
    cluster.signal(cluster.keeper, signal.SIGSTOP)  # A node that is gone does not start its supervisor again.
    try:
        cluster.kill(cluster.daemon(node))
        cluster.kill(worker)
        wait(
            lambda: [one for one in cluster.workers() if one.parent.parent.name != node], "a worker elsewhere"
        )
    finally:
        cluster.signal(cluster.keeper, signal.SIGCONT)


def _update(cluster: LocalCluster, file: Path) -> None:
    file.write_text(JOB.format(keys=51))
    cluster.penstock("update", "steady", str(file))


def _pause(
    name: str,
    fault: Callable[[LocalCluster], None],
    cluster: LocalCluster,
    commits: Commits,
    usual: float,
    *,
    at_most: float | None,
) -> Row:
    before = cluster.workers()
    moment = time.time()
    fault(cluster)
    wait(lambda: (now := cluster.workers()) and now != before and len(now) == 1, "a new worker alone")
    alone = time.time()
    wait(lambda: len(commits.since(alone)) > 5, "batches of the new worker")
    seconds = commits.longest(moment)
    return Row(
        benchmark=f"{name}, longest pause between batches",
        other_name="between batches otherwise",
        unit="s",
        ours=seconds,
        other=usual,
        ratio=seconds / usual,
        target="" if at_most is None else f"at most {at_most:g} s",
        met=None if at_most is None else seconds <= at_most,
        note="Spark's start included" if "killed" in name else "Spark starts before",
    )
