"""Workers started by hand, as a supervisor would, with a real ZooKeeper and a job whose output is checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from killing import read
from unpacked_code import unpack_code

import penstock
from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.worker_documents import Result, WorkerInfo
from penstock.coord import store_paths
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.daemon.worker_folder import WorkerConfig, read_exit
from penstock.errors import LogNotFoundError
from penstock.keyring import Keyring, open_keyring
from penstock.log import Log, log_folder
from penstock.record import Record
from penstock.supervisor.executor_command import executor_command
from support.engines import LOCAL
from support.settings import make_assignment
from support.waiting import DEADLINE, eventually
from support.worker_files import read_heartbeat, write_worker_config

JOB = "counted"
SOURCES = str(Path(penstock.__file__).parents[1])


@contextmanager
def running_zookeeper(folder: Path) -> Iterator[EmbeddedZooKeeper]:
    """Return a server for one lab after another."""
    server = EmbeddedZooKeeper(folder)
    try:
        server.start()
        server.wait_ready(timeout=DEADLINE)
        yield server
    finally:
        server.stop()


class Lab:
    """A store, a shared folder, and processes by name. ``engine`` is what workers run the job on."""

    def __init__(self, folder: Path, zookeeper: EmbeddedZooKeeper, engine: str) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.bundle = folder / "bundle"
        self.keys = folder / "keys"
        self.storage.mkdir()
        self.unpack_code("counted_job.py", "counted_keys.py")
        self.ring: Keyring = open_keyring(self.keys, create=True)
        self.log = Log.create(log_folder("input", self.storage), partitions=2)
        self.fed = 0
        self.zookeeper = zookeeper
        self.engine = engine
        self._root = f"/lab-{uuid4().hex}"
        self._worker = (
            "penstock.testing.local_engine_worker" if engine == LOCAL else "penstock.worker.worker_main"
        )
        self.processes: list[subprocess.Popen[bytes]] = []
        self._feeding = threading.Event()
        self._feeder: threading.Thread | None = None

    def unpack_code(self, *names: str) -> None:
        """Unpack a bundle with these files of this folder, the first of which defines the job."""
        unpack_code(self.bundle, *names)

    def __enter__(self) -> Lab:
        self.store = ZooKeeperStore.connect(
            self.zookeeper.connect_string, self.ring.store_password, root=self._root, timeout=60.0
        )
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop_feeding()
        for process in self.processes:
            kill_tree(process.pid)
            process.wait()
        self.store.close()

    def feed(self, count: int) -> None:
        """Append some more numbers."""
        self.log.append([Record(None, number) for number in range(self.fed, self.fed + count)])
        self.fed += count

    def keep_feeding(self, count: int = 20, pause: float = 0.05) -> None:
        """Append numbers all the time, in a thread."""

        def feed() -> None:
            while not self._feeding.wait(pause):
                self.feed(count)

        self._feeder = threading.Thread(target=feed)
        self._feeder.start()

    def stop_feeding(self) -> None:
        """Append no more."""
        self._feeding.set()
        if self._feeder is not None:
            self._feeder.join()

    def assign(self, assignment: Assignment | None) -> None:
        """Say what shall run, as the leader would."""
        path = f"{store_paths.ASSIGNMENTS}/{assignment.job if assignment is not None else JOB}"
        if assignment is None:
            self.store.delete(path)
        elif self.store.get(path) is None:
            self.store.create(path, encode(assignment))
        else:
            self.store.set(path, encode(assignment))

    def assignment(
        self,
        revision: int,
        *,
        executors: tuple[ExecutorSlot, ...] = (),
        spark_master: str | None = None,
        until: str | None = None,
        fresh: bool = False,
    ) -> Assignment:
        """Make an assignment of the job to the first node."""
        return make_assignment(
            JOB,
            1,
            revision,
            1,
            "",
            "counted_job.py",
            "n1",
            2,
            1 << 30,
            executors,
            spark_master=spark_master,
            until=until,
            fresh=fresh,
        )

    def instance(self, revision: int, attempt: int, job: str = JOB) -> Path:
        """Return where a worker's folder is."""
        return self.folder / "instances" / f"{job}-driver-{revision}-{attempt}"

    def start_worker(
        self, assignment: Assignment, attempt: int = 1, **environment: object
    ) -> subprocess.Popen[bytes]:
        """Start a worker in a session of its own."""
        folder = self.instance(assignment.revision, attempt, assignment.job)
        folder.mkdir(mode=0o700, parents=True)
        write_worker_config(
            folder,
            WorkerConfig(
                assignment.job,
                "n1",
                "127.0.0.1",
                assignment.revision,
                attempt,
                self.zookeeper.connect_string,
                self._root,
                str(self.keys),
                str(self.storage),
                str(self.bundle),
                assignment,
            ),
        )
        return self.start([sys.executable, "-m", self._worker, str(folder)], folder, environment)

    def start_executor(
        self, info: WorkerInfo, slot: ExecutorSlot, attempt: int, host: str, secret: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Start an executor, as the supervisor of its node would."""
        folder = self.folder / "instances" / f"{JOB}-executor-{slot.ordinal}-{info.revision}-{attempt}"
        folder.mkdir(mode=0o700, parents=True)
        command, environment = executor_command(
            info,
            slot,
            slot.ordinal * 1000 + attempt,
            host=host,
            secret=secret or self.ring.spark_secret(JOB, info.revision, info.attempt),
            bundle=self.bundle,
            storage=self.storage,
            folder=folder,
        )
        return self.start(command, folder, environment, bare=True)

    def start(
        self, command: list[str], folder: Path, environment: object, *, bare: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a process that :meth:`__exit__` ends."""
        assert isinstance(environment, dict)
        given = {name: str(value) for name, value in environment.items()}
        with (folder / "stderr").open("wb") as errors:
            process = subprocess.Popen(
                command,
                env=given if bare else {**os.environ, "PYTHONPATH": SOURCES, **given},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def info(self, revision: int, attempt: int = 1, job: str = JOB) -> WorkerInfo | None:
        """Return what the store has of a worker."""
        node = self.store.get(store_paths.worker(job, revision, attempt))
        return decode(WorkerInfo, node.data) if node is not None else None

    def wait_phase(self, phase: str, revision: int, attempt: int = 1, job: str = JOB) -> WorkerInfo:
        """Wait until a worker is in a phase."""

        def there() -> WorkerInfo | None:
            ended = read_exit(self.instance(revision, attempt, job))
            assert ended is None or phase == "stopped", ended
            info = self.info(revision, attempt, job)
            return info if info is not None and info.phase == phase else None

        return eventually(f"worker {job} {revision}-{attempt} {phase}", there)

    def wait_connected(self, revision: int, attempt: int = 1) -> WorkerInfo:
        """Wait until executors can be started for a worker."""

        def there() -> WorkerInfo | None:
            assert read_exit(self.instance(revision, attempt)) is None
            info = self.info(revision, attempt)
            return info if info is not None and info.driver_url != "" else None

        return eventually(f"the driver of worker {revision}-{attempt}", there)

    def batches(self, revision: int, attempt: int = 1) -> int:
        """How many batches a worker has run, by its heartbeat."""
        beat = read_heartbeat(self.instance(revision, attempt))
        return beat[0].progress.batches if beat is not None else 0

    def wait_batches(self, count: int, revision: int, attempt: int = 1) -> None:
        """Wait until a worker has run some more batches."""
        goal = self.batches(revision, attempt) + count
        eventually(f"{count} batches", lambda: self.batches(revision, attempt) >= goal)

    def result(self) -> Result | None:
        """Return how the job has ended."""
        node = self.store.get(f"{store_paths.RESULTS}/{JOB}")
        return decode(Result, node.data) if node is not None else None

    def outputs(self) -> int:
        """How many records have come out so far."""
        try:
            return sum(Log.open(log_folder("output", self.storage)).ends())
        except LogNotFoundError:
            return 0

    def check_output(self) -> None:
        """Wait until all input has come out, and see that it did so exactly once."""
        eventually(f"{self.fed} records", lambda: self.outputs() >= self.fed)
        records = read(self.storage, "output")
        values = Counter(record.value[1] for record in records)
        assert values == Counter(range(self.fed))
        visits = Counter((record.key, record.value[0]) for record in records)
        by_key = Counter(record.key for record in records)
        assert visits == Counter((key, n + 1) for key, count in by_key.items() for n in range(count))


def tree_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all that it has started."""
    for process in tree_of(pid):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_tree(pid: int) -> None:
    """End a process and all that it has started, whatever state they are in."""
    tree = tree_of(pid)
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree, timeout=10)


def java_of(pid: int) -> psutil.Process:
    """Return the Java process of a driver. Those of Python beside it come and go."""
    for process in tree_of(pid):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                return process
    raise AssertionError(f"process {pid} has no Java")


def check_on_no_command_line(secrets: Sequence[str]) -> None:
    """See that no process, of whomever, was started with a secret among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_text(errors="replace")
            assert not [secret for secret in secrets if secret in command]


def check_nothing_is_open(java: psutil.Process) -> None:
    """See that a driver listens on the loopback only, and lets nobody in without its secret."""
    listening = [c.laddr for c in java.net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening
    assert all(address.ip.removeprefix("::ffff:").startswith("127.") for address in listening)
    for ip, port in sorted({(address.ip.removeprefix("::ffff:"), address.port) for address in listening}):
        # Spark's own protocols hang up; its page says that this is forbidden.
        with pytest.raises((OSError, HTTPException)):
            urllib.request.urlopen(f"http://{ip}:{port}/", timeout=5)
