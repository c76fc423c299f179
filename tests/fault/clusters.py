"""A cluster of real processes for tests: each can be killed or paused, and all are ended at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.errors import LogNotFoundError
from penstock.keyring import Keyring, open_keyring
from penstock.log import Log, log_folder
from penstock.processes.process_control import OsProcesses
from penstock.record import Record
from support import lab_supervisor
from support.engines import SPARK
from support.paused_processes import pause
from support.waiting import DEADLINE, eventually, promised

MOVE_SECONDS = 20.0
"""Within this time of a death another worker of the job is started, on its node or elsewhere."""

_PORTS = range(6100, 12_000)
_LAB_SUPERVISOR = Path(lab_supervisor.__file__)

JOB = '''
import penstock as ps


class Tally(ps.StatefulTask):
    """Numbers what comes of each key: number n of a key is emitted once, whatever batch it is in."""

    def update(self, key, values, state):
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


job = ps.Job("{name}", parallelism=2)
source = job.source("in", ps.LogSource("{name}-in", max_records_per_batch=20_000))
source >> job.task("by_key", lambda r: (r.value % 50, r.value)) >> job.task("tally", Tally()) \\
    >> job.sink("out", ps.LogSink("{name}-out"))
'''

UNHURRIED = JOB.replace("parallelism=2", 'parallelism=2, interval="1s"')
"""The same job for Spark, which would run batch upon batch: who starts then needs the processors, too."""


class Daemon:
    """A master or a supervisor: a process that can be started again."""

    def __init__(self, cluster: Cluster, kind: str, name: str, arguments: list[str]) -> None:
        self.name = name
        in_lab = kind == "supervisor" and cluster.lab
        program = [str(_LAB_SUPERVISOR), json.dumps(cluster.lab)] if in_lab else ["-m", "penstock.cli.main"]
        self._command = [sys.executable, *program, kind, "--name", name, *arguments]
        self._cluster = cluster
        self._output = cluster.home / f"{name}.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                env=self._cluster.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.paused = True
        pause(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False


class Cluster:
    """ZooKeeper servers, masters and supervisors on this machine, each a process of its own.

    Nodes that are ``idle`` say so, whatever the machine does: where something is placed is then foreseeable.
    ``engine`` is what their workers run jobs on. One that shows no sign of life for ``heartbeat`` seconds
    is hung. ``lab`` has more of what supervisors of tests can be told (:mod:`support.lab_supervisor`).
    """

    def __init__(
        self,
        home: Path,
        *,
        nodes: int = 3,
        masters: int = 2,
        servers: int = 3,
        cores: int = 2,
        idle: bool = False,
        engine: str = SPARK,
        heartbeat: float | None = None,
        lab: Mapping[str, float] | None = None,
    ) -> None:
        self.home = home
        self.environment = {**os.environ, "PENSTOCK_HOME": str(home)}
        self.folder = home / "cluster"
        self.keyring: Keyring = open_keyring(self.folder, create=True)
        self.zookeeper = EmbeddedZooKeeper(self.folder / "zookeeper", servers=servers)
        self.cores = cores
        self.engine = engine
        self.lab: dict[str, Any] = {}
        """What its supervisors are told that no user could tell them."""
        if idle or heartbeat is not None or lab or engine != SPARK:
            self.lab = {"idle": idle, "engine": engine, **(lab or {})}
        if heartbeat is not None:
            self.lab["heartbeat"] = heartbeat
        self._masters, self._nodes = masters, nodes
        self.masters: list[Daemon] = []
        self.supervisors: dict[str, Daemon] = {}
        self._processes = OsProcesses()
        self._urls: dict[str, str] = {}
        # To make one takes longer than to ask.
        self._http = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))

    def start(self) -> None:
        """Start everything, and wait until it is there."""
        self.zookeeper.start()
        self.zookeeper.wait_ready(timeout=DEADLINE)
        for number in range(1, self._masters + 1):
            port = free_port()
            arguments = ["--host", "127.0.0.1", "--port", str(port), "--connect", self.connect]
            master = Daemon(self, "master", f"m{number}", arguments)
            self._urls[master.name] = f"http://127.0.0.1:{port}"
            self.masters.append(master)
            master.start()
        for number in range(1, self._nodes + 1):
            self.add_node(number)
        eventually("a leader and all nodes", lambda: self.leader() and len(self.get("/nodes")) == self._nodes)

    @property
    def connect(self) -> str:
        """Where ZooKeeper answers."""
        return self.zookeeper.connect_string

    def add_node(self, number: int) -> Daemon:
        """Start the supervisor of one more node."""
        arguments = ["--host", f"127.0.0.{number + 1}", "--cores", str(self.cores), "--memory", "8g"]
        arguments += ["--port", str(free_port()), "--connect", self.connect, "--storage", str(self.home)]
        supervisor = Daemon(self, "supervisor", f"n{number}", arguments)
        self.supervisors[f"n{number}"] = supervisor
        supervisor.start()
        return supervisor

    def submit(self, name: str, *options: str, code: str = JOB) -> Path:
        """Submit a job of the usual kind and wait until it has done a batch; return its file."""
        file = self.home / f"{name.replace('-', '_')}.py"
        file.write_text(code.format(name=name))
        advances = self.batches_advance(name)  # It may have input for one batch only.
        self.cli("submit", str(file), "--memory", "1g", *options)
        eventually(f"{name} runs", lambda: self.worker(name))
        eventually(f"a batch of {name}", advances)
        return file

    def close(self) -> None:
        """End every process, by its id."""
        for daemon in [*self.supervisors.values(), *self.masters]:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.resume()
                daemon.kill()
        for folder in self._instance_folders():
            self._processes.kill_all(folder)
        self.zookeeper.stop()
        self._http.close()

    def _instance_folders(self, node: str = "*") -> list[Path]:
        return sorted(self.folder.glob(f"nodes/{node}/instances/*"))

    def instances(self, job: str) -> list[Path]:
        """Return the folders of a job's processes, living and dead, on all nodes."""
        return [folder for folder in self._instance_folders() if folder.name.startswith(f"{job}-")]

    def cli(self, *arguments: str, expect: int = 0) -> str:
        """Run ``penstock`` and return what it printed; what went wrong, where that was expected."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            env={**self.environment, "PENSTOCK_MASTER_URL": ",".join(self.urls())},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        assert done.returncode == expect, f"penstock {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout if expect == 0 else done.stderr

    def urls(self) -> list[str]:
        """Return where the masters that live answer, or would if they were not paused."""
        return [self._urls[master.name] for master in self.masters if master.alive]

    def get(self, path: str) -> Any:
        """Ask until a master answers: one that is busy, or an election, says nothing about what is asked.

        None when there is no such thing.
        """
        return eventually(f"an answer about {path}", lambda: self._answers(path, 10.0))[0]

    def _answers(self, path: str, timeout: float) -> list[Any]:
        """Ask the masters, and return the first answer there is, if any.

        None is asked that the test has paused: to wait in vain for it takes longer than a new one to lead.
        """
        for url in (self._urls[master.name] for master in self.masters if master.alive and not master.paused):
            try:
                answer = self._http.get(
                    f"{url}/api/v1{path}",
                    headers={"Authorization": f"Bearer {self.keyring.token}"},
                    timeout=timeout,
                )
            except httpx.HTTPError:
                continue
            if answer.status_code == httpx.codes.OK:
                return [answer.json()]
            if answer.status_code == httpx.codes.NOT_FOUND:
                return [None]
        return []

    def metrics(self, master: Daemon) -> str:
        """Return what one master says of itself; nothing if it does not answer."""
        try:
            return self._http.get(f"{self._urls[master.name]}/metrics", timeout=1.0).text
        except httpx.HTTPError:
            return ""

    def leads(self, master: Daemon) -> bool:
        """Whether a master says of itself that it leads; no other master is asked for that."""
        return master.alive and not master.paused and "penstock_master_leader 1" in self.metrics(master)

    def leader(self) -> Daemon | None:
        """Return the master that leads, if one answers that it does."""
        for found in self._answers("/cluster", 3.0):
            return next((m for m in self.masters if m.name == found["leader"] and m.alive), None)
        return None

    def job(self, name: str) -> dict[str, Any]:
        """Return all that is known of a job."""
        found = self.get(f"/jobs/{name}")
        return found if isinstance(found, dict) else {}

    def worker(self, name: str) -> dict[str, Any] | None:
        """Return the one worker of a job that runs; two would be an error."""
        running = [worker for worker in self.job(name).get("workers", ()) if worker["phase"] == "running"]
        assert len(running) <= 1, f"twins: {running}"
        return running[0] if running else None

    def batches_advance(self, name: str, home: Path | None = None) -> Callable[[], bool]:
        """Return a condition: the job has committed a batch since now."""
        before = committed(home or self.home, name)
        return lambda: committed(home or self.home, name) > before

    def kill_node(self, name: str) -> list[int]:
        """Kill every process of a node: its supervisor, workers, their Java and Python."""
        supervisor = self.supervisors[name]
        if supervisor.alive:
            supervisor.kill()
        killed = [supervisor.pid]
        self.kill_workers(name)
        return killed

    def kill_workers(self, name: str) -> None:
        """Kill the workers of a node, with their Java and Python."""
        for folder in self._instance_folders(name):
            self._processes.kill_all(folder)

    def drivers(self, name: str) -> list[psutil.Process]:
        """Return the processes of all workers of a job that live, on whatever node."""
        return self.living("*", f"{name}-driver-")

    def wait_for_another(self, name: str, driver: psutil.Process) -> None:
        """Wait for another process of a job, when one has died."""
        promised(
            MOVE_SECONDS,
            "another worker",
            lambda: [one.pid for one in self.drivers(name)] not in ([], [driver.pid]),
            self.home,
        )

    def living(self, node: str, prefix: str) -> list[psutil.Process]:
        """Return the processes of a node that live and whose folders begin like this."""
        found = []
        for folder in self._instance_folders(node):
            process = self._processes.find(folder) if folder.name.startswith(prefix) else None
            if process is not None:
                with suppress(psutil.NoSuchProcess):  # It has just ended.
                    found.append(psutil.Process(process.pid))
        return found


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def free_port() -> int:
    """Return a port that nobody listens on now.

    Not one that the system would give: it gives those to whoever asks, also until this one is listened on.
    """
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def committed(home: Path, job: str) -> int:
    """Return how many batches of a job have happened."""
    while True:
        with suppress(_RenamedError):
            return max((int(name[:-5]) + 1 for name in _entries(home / "cluster-jobs" / job)), default=0)


class _RenamedError(Exception):
    """A worker has taken a job's folder over while it was looked at."""


def _entries(folder: Path) -> list[str]:
    """Return the names of a job's ledger entries, whoever has its folder."""
    names: list[str] = []
    for attempt in os.listdir(folder) if folder.exists() else ():
        try:
            names += os.listdir(folder / attempt / "ledger")
        except OSError:
            if not (folder / attempt).exists():
                raise _RenamedError from None
    return [name for name in names if name.endswith(".json")]


class Feeder:
    """Appends numbers to a job's log without a pause, and knows which."""

    def __init__(self, home: Path, job: str, rate: int = 500) -> None:
        self.count = 0
        self._log = Log.create(log_folder(f"{job}-in", home), partitions=2, exist_ok=True)
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def _feed(self) -> None:
        step = max(1, self._rate // 10)
        while not self._stop.wait(0.1):
            self._log.append([Record(None, self.count + n) for n in range(step)])
            self.count += step

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def feeding(self) -> bool:
        """Whether more is to come."""
        return not self._stop.is_set()

    def stop(self) -> None:
        """Feed no more; what was fed is counted when this returns."""
        self._stop.set()
        self._thread.join()


def outputs(home: Path, job: str) -> list[Record]:
    """Return what a job has written."""
    return records_in(home, f"{job}-out")


def records_in(home: Path, name: str) -> list[Record]:
    """Return all records of a log, none if it is not there."""
    try:
        log = Log.open(log_folder(name, home))
    except LogNotFoundError:
        return []
    return [
        record
        for partition in range(log.partitions)
        for records in log.read(partition, log.begin(partition))
        for record in records
    ]


def check_exact(home: Path, job: str, count: int) -> None:
    """Every number once, none missing; and each key's numbering without gap or double."""
    records = outputs(home, job)
    numbers = Counter(record.value[1] for record in records)
    doubled = {number: times for number, times in numbers.items() if times > 1}
    missing = [number for number in range(count) if number not in numbers]
    assert not doubled, f"{len(doubled)} doubled, for instance {sorted(doubled.items())[:5]}"
    assert not missing, f"{len(missing)} missing, for instance {missing[:5]}"
    assert len(numbers) == count
    check_numbering(records)


def check_numbering(records: Iterable[Record]) -> None:
    """See that the records of each key are numbered without gap or double."""
    visits: dict[int, list[int]] = {}
    for record in records:
        visits.setdefault(record.key, []).append(record.value[0])
    for key, found in visits.items():
        assert sorted(found) == list(range(1, len(found) + 1)), f"key {key} was not numbered without gap"


def wait_for_outputs(home: Path, job: str, count: int) -> None:
    """Wait until a job has written as many records as went in."""
    eventually(f"{count} records of {job}", lambda: written(home, job) >= count)


def written(home: Path, job: str) -> int:
    """Return how many records a job has written, without reading them."""
    return length(home, f"{job}-out")


def length(home: Path, name: str) -> int:
    """Return how many records were ever appended to a log."""
    try:
        return sum(Log.open(log_folder(name, home)).ends())
    except LogNotFoundError:
        return 0


def newest(home: Path, job: str) -> list[Record]:
    """Return the last records that a job has written, some of each partition."""
    log = Log.open(log_folder(f"{job}-out", home))
    starts = {partition: max(end - 50, log.begin(partition)) for partition, end in enumerate(log.ends())}
    return [
        record
        for partition, start in starts.items()
        for records in log.read(partition, start)
        for record in records
    ]


@contextmanager
def running_cluster(
    home: Path,
    *,
    idle: bool = False,
    engine: str = SPARK,
    heartbeat: float | None = None,
    lab: Mapping[str, float] | None = None,
    **sizes: int,
) -> Iterator[Cluster]:
    """A cluster that is ended whatever happens."""
    cluster = Cluster(home, idle=idle, engine=engine, heartbeat=heartbeat, lab=lab, **sizes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
