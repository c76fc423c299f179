"""The folder of a process that a supervisor has started: its files, their writers and formats.

- ``instance.json``: what to start; written by the supervisor before the start.
- ``process.json``: the process itself; written by the process launcher.
- ``heartbeat``: the worker's state, about once a second; written by its main loop.
- ``pulse``: that the process is alive; written by a thread of the worker while it starts.
- ``exit.json``: outcome and reason; written by the worker before it ends.

Supervisor and worker communicate only through this module, which neither starts nor ends processes. The files
``asked``, ``killed`` and ``counted`` belong to the supervisor's ``node_instances``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.document_codec import DocumentError, encode, of_plain
from penstock.cluster.worker_documents import Progress, ReplicaReport, WorkerInfo
from penstock.errors import SettingError
from penstock.local_files import write_private
from penstock.process_logs.process_log import get_logger
from penstock.replicas.replica_id import AboutReplica, ReplicaName

T = TypeVar("T")

INSTANCE_FILE = "instance.json"
HEARTBEAT_FILE = "heartbeat"
PULSE_FILE = "pulse"
"""Written by a thread of a worker while its main loop cannot write heartbeats."""
EXIT_FILE = "exit.json"
LOG_FILE = "log.jsonl"
OUTPUT_FILE = "output.log"
"""Output of Java, and of programs and native libraries that user code calls. The output of Python code goes
to other files: :mod:`penstock.process_logs.user_output`."""
WORKER = "worker"
"""The name of a worker's process in logs; an executor is named by its role."""

EXIT_ENDED = 0
"""The exit code of a worker that ended normally: drained, stopped, superseded."""
EXIT_FAILED = 1
"""The exit code of a worker that should be restarted."""
EXIT_REFUSED = 3
"""The exit code of a worker that would fail in the same way again."""


@dataclass(frozen=True)
class WorkerConfig(AboutReplica):
    """The configuration of a worker, written by its supervisor."""

    job: ReplicaName
    node: str
    host: str
    revision: int
    attempt: int
    connect: str
    """The servers of the store, ``host:port,host:port``."""
    root: str
    key_folder: str
    """The folder with the cluster's key."""
    storage: str
    """The worker's home: the folder shared by all nodes, or a folder of this node if it keeps the data."""
    bundle: str
    """The folder with the job's verified code."""
    assignment: Assignment
    snapshots: str = ""
    """The folder with the snapshots that this node keeps for other nodes, perhaps also of this job."""


@dataclass(frozen=True)
class WorkerExit:
    """The outcome that a worker has written."""

    outcome: str
    """``drained``, ``stopped``, ``superseded``, ``failed`` or ``refused``."""
    reason: str


def read_worker_config(folder: Path) -> WorkerConfig:
    """Read the configuration that the supervisor has written. Raises SettingError."""
    path = folder / INSTANCE_FILE
    try:
        read = of_plain(WorkerConfig, json.loads(path.read_text()))
    except (OSError, ValueError, DocumentError) as error:
        raise SettingError(f"{path} is not the configuration of a worker: {error}") from error
    assert isinstance(read, WorkerConfig)
    return read


def write_heartbeat(folder: Path, info: WorkerInfo) -> None:
    """Write the worker's state and the time by the monotonic clock.

    That clock is the same for all processes of the machine, and is never set.
    """
    content = {**json.loads(encode(info)), "monotonic": time.monotonic()}
    write_private(folder / HEARTBEAT_FILE, json.dumps(content, sort_keys=True))


def write_pulse(folder: Path) -> None:
    """Note that the process of a worker is alive, whether or not its main loop makes progress."""
    write_private(folder / PULSE_FILE, json.dumps({"monotonic": time.monotonic()}))


def write_exit(folder: Path, outcome: str, reason: str) -> None:
    """Write how the worker has ended, unless it was written before."""
    if not (folder / EXIT_FILE).exists():
        write_private(folder / EXIT_FILE, json.dumps({"outcome": outcome, "reason": reason}).encode())


def read_exit(folder: Path) -> WorkerExit | None:
    """Return how a worker has ended; None if it has not written that."""
    try:
        read = of_plain(WorkerExit, json.loads((folder / EXIT_FILE).read_text()))
    except (OSError, ValueError, DocumentError):
        return None
    assert isinstance(read, WorkerExit)
    return read


_log = get_logger(__name__)


class Pulse:
    """A thread that writes the pulse file to a worker's folder every second.

    It shows that the process is alive and gets processor time. Only heartbeats show that the main loop makes
    progress: a start that takes too long is aborted in spite of its pulse.
    """

    def __init__(self, folder: Path, every: float = 1.0) -> None:
        self._folder = folder
        self._every = every
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Write the pulse inside of the context; a nested context has no effect."""
        if self._thread is not None:
            yield
            return
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Start writing the pulse."""
        if self._thread is None:
            self._over = threading.Event()
            self._thread = threading.Thread(
                target=self._write_until, args=(self._over,), name="pulse", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop writing the pulse."""
        thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join()

    def _write_until(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                write_pulse(self._folder)
            except OSError as error:  # For example a full disk, which may have room again later.
                _log.warning("pulse not written", reason=str(error))
            over.wait(self._every)


@dataclass(frozen=True)
class InstanceRecord(AboutReplica):
    """The part of ``instance.json`` that a supervisor reads; the worker reads more."""

    job: ReplicaName
    role: str
    revision: int
    attempt: int
    generation: int
    started: float
    """Seconds since 1970."""
    monotonic: float | None = None
    """The same by the monotonic clock; None if an older version has started the process."""
    app_id: str = ""
    failures: int = 0
    size: tuple[int, int] | None = None
    bundle: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of a worker."""

    version: tuple[int, int] = (0, 0)
    """The version of the file, which is read again only if this has changed."""
    at: float = 0.0
    phase: str = ""
    progress: Progress = field(default_factory=Progress)
    joined: ReplicaReport | None = None


def instance_folder_name(job: str, role: str, revision: int, attempt: int) -> str:
    """Return the name of a process's folder.

    >>> instance_folder_name("wordcount", "executor-2", 3, 1)
    'wordcount-executor-2-000003-0001'
    """
    return f"{job}-{role}-{revision:06d}-{attempt:04d}"


def read_instance_record(folder: Path) -> InstanceRecord | None:
    """Return the record of a folder's process; None if there is none yet.

    Raises DocumentError, OSError or ValueError when there is one that cannot be read.
    """
    try:
        text = (folder / INSTANCE_FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = cast(InstanceRecord, of_plain(InstanceRecord, json.loads(text)))
    named = instance_folder_name(found.job, found.role, found.revision, found.attempt)
    if named != folder.name:
        raise DocumentError(f"{INSTANCE_FILE} describes {named}, not {folder.name}")
    return found


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        return parse_json_object(path.read_text())
    except (OSError, ValueError):
        return {}


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the text is not a JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def file_version(path: Path) -> tuple[int, int] | None:
    """Return the modification time in nanoseconds and the inode of a file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def decode_part(kind: type[T], given: Any) -> T | None:
    """Decode a part of a heartbeat; None when it is missing or invalid."""
    try:
        return cast(T, of_plain(kind, given)) if given is not None else None
    except DocumentError:
        return None


def modified_at(path: Path) -> float:
    """Return the modification time of a file in seconds since 1970; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
