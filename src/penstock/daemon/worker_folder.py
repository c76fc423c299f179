"""The folder of a process that a supervisor has started: its files, their writers and formats.

- ``instance.json``: what to start; written by the supervisor before the start.
- ``process.json``: the process itself; written by the process launcher.
- ``heartbeat``: the worker's state, about once a second; written by its main loop.
- ``pulse``: that the process is alive; written by a thread of the worker while its start takes time.
- ``exit.json``: outcome and reason; written by the worker before it ends.

Supervisor and worker both use this module and nothing else to talk to each other. It starts and ends no
process. The files ``asked``, ``killed`` and ``counted`` belong to the supervisor's ``node_instances``.
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
"""Written by a thread of a worker while its main loop cannot say that it is well."""
EXIT_FILE = "exit.json"
LOG_FILE = "log.jsonl"
OUTPUT_FILE = "output.log"
"""What Java prints, and programs and libraries that user code calls. What its Python prints is elsewhere:
:mod:`penstock.process_logs.user_output`."""
WORKER = "worker"
"""How the process of a worker is named in logs; an executor is named by its role."""

EXIT_ENDED = 0
"""The exit code of a worker that ended as it should: drained, stopped, superseded."""
EXIT_FAILED = 1
"""The exit code of a worker for which it is worth trying again."""
EXIT_REFUSED = 3
"""The exit code of a worker for which trying again is useless."""


@dataclass(frozen=True)
class WorkerConfig(AboutReplica):
    """What a worker is told when it is started."""

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
    """The worker's home: the folder that all nodes share, or one of this node for data that is with it."""
    bundle: str
    """The folder with the job's code, which has been verified."""
    assignment: Assignment
    snapshots: str = ""
    """The folder with the snapshots that this node keeps for others: this one may have been another."""


@dataclass(frozen=True)
class WorkerExit:
    """The outcome that a worker has written."""

    outcome: str
    """``drained``, ``stopped``, ``superseded``, ``failed`` or ``refused``."""
    reason: str


def read_worker_config(folder: Path) -> WorkerConfig:
    """Read what the supervisor has left; raises SettingError."""
    path = folder / INSTANCE_FILE
    try:
        read = of_plain(WorkerConfig, json.loads(path.read_text()))
    except (OSError, ValueError, DocumentError) as error:
        raise SettingError(f"{path} does not say what to run: {error}") from error
    assert isinstance(read, WorkerConfig)
    return read


def write_heartbeat(folder: Path, info: WorkerInfo) -> None:
    """Say that the worker is alive, and how it is doing.

    When that was is in the file as well: the machine's own clock is the same for all its processes, and
    nobody sets it.
    """
    content = {**json.loads(encode(info)), "monotonic": time.monotonic()}
    write_private(folder / HEARTBEAT_FILE, json.dumps(content, sort_keys=True))


def write_pulse(folder: Path) -> None:
    """Say that the process of a worker lives, whatever its main loop does."""
    write_private(folder / PULSE_FILE, json.dumps({"monotonic": time.monotonic()}))


def write_exit(folder: Path, outcome: str, reason: str) -> None:
    """Write how the worker has ended, unless that is written already."""
    if not (folder / EXIT_FILE).exists():
        write_private(folder / EXIT_FILE, json.dumps({"outcome": outcome, "reason": reason}).encode())


def read_exit(folder: Path) -> WorkerExit | None:
    """Return how a worker has ended, if it has had time to say so."""
    try:
        read = of_plain(WorkerExit, json.loads((folder / EXIT_FILE).read_text()))
    except (OSError, ValueError, DocumentError):
        return None
    assert isinstance(read, WorkerExit)
    return read


_log = get_logger(__name__)


class Pulse:
    """A thread that leaves a sign of life in a worker's folder every second, for as long as it is shown.

    It proves that the process gets its share of the processor. That its main loop gets on is what heartbeats
    are for: a start that takes too long is given up in spite of its pulse.
    """

    def __init__(self, folder: Path, every: float = 1.0) -> None:
        self._folder = folder
        self._every = every
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while something takes time; inside of another such context nothing changes."""
        if self._thread is not None:
            yield
            return
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Begin to show it."""
        if self._thread is None:
            self._over = threading.Event()
            self._thread = threading.Thread(target=self._show, args=(self._over,), name="pulse", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Show it no longer."""
        thread, self._thread = self._thread, None
        self._over.set()
        if thread is not None:
            thread.join()

    def _show(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                write_pulse(self._folder)
            except OSError as error:  # A full disk, perhaps: it may have room again.
                _log.warning("no sign of life written", reason=str(error))
            over.wait(self._every)


@dataclass(frozen=True)
class InstanceRecord(AboutReplica):
    """What a supervisor needs of ``instance.json``. The worker reads more of it."""

    job: ReplicaName
    role: str
    revision: int
    attempt: int
    generation: int
    started: float
    """Seconds since 1970."""
    monotonic: float | None = None
    """The same by the machine's own clock; None if an older version has started it."""
    app_id: str = ""
    failures: int = 0
    size: tuple[int, int] | None = None
    bundle: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """What a worker has said last."""

    version: tuple[int, int] = (0, 0)
    """Of the file: it is read again only if that has changed."""
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
    """Return what a folder says of its process; None before it says anything.

    Raises DocumentError, OSError or ValueError when that cannot be read, which is not the same as nothing.
    """
    try:
        text = (folder / INSTANCE_FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = cast(InstanceRecord, of_plain(InstanceRecord, json.loads(text)))
    named = instance_folder_name(found.job, found.role, found.revision, found.attempt)
    if named != folder.name:
        raise DocumentError(f"{INSTANCE_FILE} is of {named}, and not of {folder.name}")
    return found


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        return parse_json_object(path.read_text())
    except (OSError, ValueError):
        return {}


def parse_json_object(text: str) -> dict[str, Any]:
    """Return what a text holds as JSON; nothing if it is no object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def file_version(path: Path) -> tuple[int, int] | None:
    """Return what changes whenever a file is written: its time in nanoseconds and its inode; None without."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def decode_part(kind: type[T], given: Any) -> T | None:
    """Return a part of a heartbeat; None when it has none, or one that cannot be read."""
    try:
        return cast(T, of_plain(kind, given)) if given is not None else None
    except DocumentError:
        return None


def modified_at(path: Path) -> float:
    """Return when a file was last written, by the time of day; 0 when there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
