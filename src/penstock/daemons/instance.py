"""The folder of one worker: what the supervisor leaves there for it, and it for the supervisor."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.cluster.codec import DocumentError, decode, encode, of_plain
from penstock.cluster.documents import Assignment, WorkerInfo
from penstock.errors import SettingError
from penstock.private_files import write_private

INSTANCE_FILE = "instance.json"
HEARTBEAT_FILE = "heartbeat"
PULSE_FILE = "pulse"
"""Written by a thread of a worker while its main loop cannot say that it is well."""
EXIT_FILE = "exit.json"
LOG_FILE = "log.jsonl"
OUTPUT_FILE = "output.log"
"""What Java prints, and programs and libraries that user code calls. What its Python prints is elsewhere:
:mod:`penstock.user_output`."""
WORKER = "worker"
"""How the process of a worker is named in logs; an executor is named by its role."""

EXIT_ENDED = 0
"""The exit code of a worker that ended as it should: drained, stopped, superseded."""
EXIT_FAILED = 1
"""The exit code of a worker for which it is worth trying again."""
EXIT_REFUSED = 3
"""The exit code of a worker for which trying again is useless."""


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is told when it is started."""

    job: str
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
    """How a worker has ended, by its own words."""

    outcome: str
    """``drained``, ``stopped``, ``superseded``, ``failed`` or ``refused``."""
    reason: str


def write_worker_config(folder: Path, instance: WorkerConfig) -> None:
    """Leave word for a worker that is about to be started in a folder."""
    write_private(folder / INSTANCE_FILE, json.dumps(asdict(instance), indent=1).encode())


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


def read_heartbeat(folder: Path) -> tuple[WorkerInfo, float] | None:
    """Return what a worker has said last and when, by the clock of files; None before it has."""
    path = folder / HEARTBEAT_FILE
    try:
        at = path.stat().st_mtime
        return decode(WorkerInfo, path.read_bytes()), at
    except (OSError, DocumentError):
        return None


def write_exit(folder: Path, outcome: str, reason: str) -> None:
    """Say how the worker has ended; the first word stands."""
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
