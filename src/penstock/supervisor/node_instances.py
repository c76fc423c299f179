"""The processes of a node, each with a folder that a restarted supervisor can continue from.

Beside the files of :mod:`penstock.daemon.worker_folder` the supervisor keeps three notes in a folder:
``asked`` (when the process was asked to end), ``killed`` (why it was killed) and ``counted`` (that its
death was counted). Durations are measured by ``time.monotonic``, which is the same for all processes of a
machine and never set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from penstock.bundles.bundle_cache import FailedStartError, RefusedStartError
from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import Progress, ReplicaReport
from penstock.cluster.worker_supervision import DRIVER, ObservedProcess, Start, is_executor
from penstock.daemon.worker_folder import (
    EXIT_FILE,
    HEARTBEAT_FILE,
    INSTANCE_FILE,
    LOG_FILE,
    PULSE_FILE,
    WORKER,
    Heartbeat,
    InstanceRecord,
    decode_part,
    file_version,
    instance_folder_name,
    modified_at,
    parse_json_object,
    read_exit,
    read_instance_record,
    read_json_object,
)
from penstock.errors import cause_of
from penstock.keyring import Keyring
from penstock.local_files import write_private
from penstock.process_logs.process_log import get_logger
from penstock.process_logs.user_output import FILE as USER_FILE
from penstock.process_logs.user_output import OutputLimits, OutputPlace
from penstock.processes.process_control import Processes
from penstock.replicas.replica_id import ReplicaId
from penstock.setting_values import name_fault
from penstock.supervisor.executor_command import executor_command, executor_id
from penstock.supervisor.supervisor import INSTANCE_ERRORS

T = TypeVar("T")

_log = get_logger(__name__)

_PASSED_ON = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV"),
    *("PENSTOCK_SNAPSHOT_RATE", "PENSTOCK_JAVA_OPTIONS"),
)
"""What a worker gets of the supervisor's environment: where programs are, nothing that might be secret."""

_KEPT = 3
"""How many dead processes of a place keep their folders, for diagnosis."""


@dataclass(frozen=True)
class NodeSettings:
    """The settings that all processes of a node share."""

    name: str
    host: str
    folder: Path
    """The node's own folder, with instances and bundles."""
    storage: Path
    key_folder: Path
    connect: str
    root: str
    output: OutputLimits = field(default_factory=OutputLimits)


WORKER_MODULE = "penstock.worker.worker_main"
"""The module that runs as a worker. Only code that creates a supervisor can choose another one."""


class FolderInstances:
    """Implements :class:`penstock.supervisor.supervisor.Instances` with folders and processes."""

    def __init__(
        self,
        node: NodeSettings,
        processes: Processes,
        keyring: Keyring,
        unpacked: Callable[[str], Path],
        *,
        worker_module: str = WORKER_MODULE,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._wall = wall
        """The time for documents and logs, in seconds since 1970."""
        self._worker_module = worker_module
        self._processes = processes
        self._keyring = keyring
        self._unpacked = unpacked
        """Returns the folder of a bundle by its digest; RefusedStartError if it cannot be trusted."""
        self._root = node.folder / "instances"
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dead: dict[str, ObservedProcess] = {}
        """By folder, dead processes: of these only ``counted`` still changes."""
        self._descriptions: dict[str, InstanceRecord] = {}
        self._heartbeats: dict[str, Heartbeat] = {}
        self._notes: dict[tuple[str, str], str] = {}
        """By folder and name, notes that could not be written to the disk."""
        self._left_alone: set[str] = set()
        """The folders that could not be read, each of which was logged once."""

    def folder(self, instance: ObservedProcess) -> Path:
        """Return the folder of a process."""
        return self._root / instance_folder_name(
            instance.job, instance.role, instance.revision, instance.attempt
        )

    def folders(self) -> list[Path]:
        """Return the folders of all processes, living and dead."""
        return [self._root / name for name in sorted(os.listdir(self._root)) if not name.startswith(".")]

    def look(self, now: float) -> list[ObservedProcess]:
        seen = self._each(lambda folder: self._dead.get(folder.name) or self._look_at(folder, now))
        found = [instance for instance in seen if instance is not None]
        self._prune(found)
        return found

    def _each(self, look: Callable[[Path], T]) -> list[T]:
        """Return the result for each folder. An unreadable folder is left alone, and logged once."""
        found = []
        for folder in self.folders():
            try:
                found.append(look(folder))
            except INSTANCE_ERRORS as error:
                if folder.name not in self._left_alone:
                    self._left_alone.add(folder.name)
                    _log.error(
                        "the folder of a process cannot be read and is left alone",
                        folder=str(folder),
                        reason=cause_of(error),
                    )
        return found

    def bundles(self) -> set[str]:
        """Return the digests of the bundles that living processes import from."""

        def bundle_of(folder: Path) -> str:
            description = read_instance_record(folder) if self._processes.alive(folder) else None
            return Path(description.bundle).name if description is not None else ""

        return {bundle for bundle in self._each(bundle_of) if bundle}

    def _look_at(self, folder: Path, now: float) -> ObservedProcess | None:
        description = self._descriptions.get(folder.name) or read_instance_record(folder)
        if description is None:
            return None
        self._descriptions[folder.name] = description
        heartbeat = self._heartbeat(folder, now)
        instance = ObservedProcess(
            job=description.job,
            role=description.role,
            revision=description.revision,
            attempt=description.attempt,
            generation=description.generation,
            alive=self._processes.alive(folder),
            started=self._moment(description.monotonic, description.started, now),
            app_id=description.app_id,
            heartbeat=heartbeat.at,
            phase=heartbeat.phase,
            progress=heartbeat.progress,
            joined=heartbeat.joined,
            pulse=self._pulse(folder, now),
            asked_to_end=self._asked(folder, now),
            since=description.started,
            failures=description.failures,
            size=description.size,
        )
        if instance.alive:
            return instance
        left = read_exit(folder)
        instance = replace(
            instance,
            outcome=left.outcome if left else "",
            reason=(left.reason if left else "") or self._died_of(folder),
            died=now,
            counted=self._noted(folder, "counted") is not None,
        )
        self._dead[folder.name] = instance
        self._descriptions.pop(folder.name, None)
        self._heartbeats.pop(folder.name, None)
        return instance

    def _heartbeat(self, folder: Path, now: float) -> Heartbeat:
        """Return the last heartbeat of a worker."""
        path = folder / HEARTBEAT_FILE
        version = file_version(path)
        known = self._heartbeats.get(folder.name, Heartbeat())
        if version is None or known.version == version:
            return known
        content = read_json_object(path)
        known = Heartbeat(
            version,
            self._moment(content.get("monotonic"), version[0] / 1e9, now),
            str(content.get("phase", "")),
            decode_part(Progress, content.get("progress")) or Progress(),
            decode_part(ReplicaReport, content.get("joined")),
        )
        self._heartbeats[folder.name] = known
        return known

    def _pulse(self, folder: Path, now: float) -> float:
        version = file_version(folder / PULSE_FILE)
        if version is None:
            return 0.0
        return self._moment(read_json_object(folder / PULSE_FILE).get("monotonic"), version[0] / 1e9, now)

    def _asked(self, folder: Path, now: float) -> float:
        """Return when a process was asked to end; 0 if it was not."""
        noted = self._noted(folder, "asked")
        if noted is None:
            return 0.0
        return self._moment(parse_json_object(noted).get("monotonic"), modified_at(folder / "asked"), now)

    def _moment(self, said: Any, wall: float, now: float) -> float:
        """Return when a file was written, by the monotonic clock.

        Files of processes that an older version started have only the time of day.
        """
        if isinstance(said, int | float):
            return float(said)
        return now - max(0.0, self._wall() - wall)

    def _died_of(self, folder: Path) -> str:
        killed = self._noted(folder, "killed")
        if killed:
            return killed
        code = self._processes.exit_code(folder)
        if code is None:
            return "the process has ended, and its exit code is not known"
        if code < 0:
            return f"it was killed by {_signal_name(-code)}"
        return f"it ended with exit code {code}"

    def _note(self, folder: Path, name: str, text: str) -> None:
        """Write a note about a process; keep it in memory if the disk is full."""
        try:
            write_private(folder / name, text)
        except OSError:
            self._notes[folder.name, name] = text

    def _noted(self, folder: Path, name: str) -> str | None:
        """Return a note about a process; None if there is none."""
        try:
            return (folder / name).read_text()
        except OSError:
            return self._notes.get((folder.name, name))

    def start(self, start: Start, now: float) -> None:
        assignment = start.assignment
        _check_job(assignment.job)
        folder = self._root / instance_folder_name(
            assignment.job, start.role, assignment.revision, start.attempt
        )
        bundle = self._unpacked(assignment.bundle)
        given = self._given(assignment)
        try:
            self._start(start, folder, bundle, given, now)
        except Exception:
            # Its folder would be taken for that of a dead process.
            if not self._processes.alive(folder):
                self._processes.kill_all(folder)
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _start(self, start: Start, folder: Path, bundle: Path, given: Mapping[str, str], now: float) -> None:
        assignment = start.assignment
        folder.mkdir(mode=0o700, exist_ok=True)
        description: dict[str, Any] = {
            "job": assignment.job,
            "role": start.role,
            "node": self._node.name,
            "host": self._node.host,
            "revision": assignment.revision,
            "attempt": start.attempt,
            "generation": assignment.generation,
            "connect": self._node.connect,
            "root": self._node.root,
            "key_folder": str(self._node.key_folder),
            "storage": str(self._home(assignment)),
            "snapshots": str(self._node.folder / "snapshots"),
            "bundle": str(bundle),
            "assignment": asdict(assignment),
            "app_id": start.driver.app_id if start.driver else "",
            "started": self._wall(),
            "monotonic": now,
            "failures": start.failures,
            "size": [start.slot.cores, start.slot.memory] if start.slot else None,
        }
        write_private(folder / INSTANCE_FILE, json.dumps(description))
        argv, environment = self._command(start, folder, bundle)
        self._processes.start(argv, folder=folder, environment={**environment, **given}, cwd=folder)

    def _given(self, assignment: Assignment) -> dict[str, str]:
        """Return the environment variables of a job. Raises FailedStartError if this node lacks one."""
        found = {
            name: os.environ.get(name) if value is None else value for name, value in assignment.env.items()
        }
        missing = sorted(name for name, value in found.items() if value is None)
        if missing:
            raise FailedStartError(
                f"job {assignment.job!r} is to get {', '.join(missing)} from the environment of its node, and"
                f" the supervisor of {self._node.name} has no such variable: start the supervisor with it, or"
                " give a value with --env NAME=VALUE"
            )
        return {name: value for name, value in found.items() if value is not None}

    def _home(self, assignment: Assignment) -> Path:
        """Return the home of a worker: the shared storage or, for node-kept data, a folder of this node."""
        if assignment.settings.data_location != "node":
            return self._node.storage
        place = self._node.folder / "kept" / assignment.job
        for folder in (place.parent, place):
            folder.mkdir(mode=0o700, exist_ok=True)
        return place / "home"

    def _command(self, start: Start, folder: Path, bundle: Path) -> tuple[list[str], Mapping[str, str]]:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"PENSTOCK_HOME": str(self._home(start.assignment)), "TMPDIR": str(folder)}
        output = self._output(start, folder).environment()
        if start.role == DRIVER:
            return [sys.executable, "-m", self._worker_module, str(folder)], environment | output
        assert start.driver is not None, "an executor has a driver"
        assert start.slot is not None, "an executor has a place"
        driver = start.driver
        secret = self._keyring.spark_secret(driver.job, driver.revision, driver.attempt)
        command, given = executor_command(
            driver,
            start.slot,
            executor_id(start.slot.ordinal, start.attempt),
            host=self._node.host,
            secret=secret,
            bundle=bundle,
            storage=self._node.storage,
            folder=folder,
        )
        return command, given | output

    def _output(self, start: Start, folder: Path) -> OutputPlace:
        """Return where the output of user code is written; Spark's Python processes inherit it."""
        limits = self._node.output
        process = WORKER if start.role == DRIVER else start.role
        node, job = self._node.name, start.assignment.job
        return OutputPlace(str(folder), node, job, process, limits.rate, limits.size)

    def log_files(self) -> list[Path]:
        """Return the logs of all processes and of their user code."""
        return [folder / name for folder in self.folders() for name in (LOG_FILE, USER_FILE)]

    def ask_to_end(self, instance: ObservedProcess, now: float) -> None:
        folder = self.folder(instance)
        self._processes.signal(folder, signal.SIGPWR if is_executor(instance.role) else signal.SIGTERM)
        self._note(folder, "asked", json.dumps({"monotonic": now}))

    def kill(self, instance: ObservedProcess, reason: str = "") -> None:
        folder = self.folder(instance)
        if reason and self._processes.alive(folder):
            self._note(folder, "killed", reason)
        self._processes.kill_all(folder)

    def count(self, instance: ObservedProcess) -> None:
        folder = self.folder(instance)
        self._note(folder, "counted", "")
        if folder.name in self._dead:
            self._dead[folder.name] = replace(self._dead[folder.name], counted=True)

    def figures(self, instance: ObservedProcess) -> tuple[float, int, int]:
        folder = self.folder(instance)
        process = self._processes.find(folder)
        return (*self._processes.figures(folder), process.pid if process else 0)

    def forget(self, revisions: Mapping[str, int]) -> None:
        """Remove the folders of dead processes of jobs, up to a revision of each."""
        if not revisions:
            return

        def remove(folder: Path) -> None:
            description = read_instance_record(folder)
            if description is not None and description.revision <= revisions.get(description.replica.job, -1):
                self._remove_dead(folder)

        self._each(remove)

    def forget_unknown(self, jobs: set[str], before: float) -> None:
        """Remove the folders of processes that died before a time and whose job is none of these."""

        def remove(folder: Path) -> None:
            description = read_instance_record(folder)
            last = max(
                modified_at(folder), modified_at(folder / EXIT_FILE), modified_at(folder / HEARTBEAT_FILE)
            )
            if description is not None and last < before and description.replica.job not in jobs:
                self._remove_dead(folder)

        self._each(remove)

    def _remove_dead(self, folder: Path) -> None:
        if not self._processes.alive(folder):
            self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """Remove a folder with all that is left of its process."""
        self._processes.kill_all(folder)
        self._processes.forget(folder)
        shutil.rmtree(folder, ignore_errors=True)
        self._dead.pop(folder.name, None)
        for name in ("asked", "killed", "counted"):
            self._notes.pop((folder.name, name), None)

    def _prune(self, found: list[ObservedProcess]) -> None:
        places: dict[tuple[ReplicaId, str], list[ObservedProcess]] = {}
        for instance in found:
            if not instance.alive:
                places.setdefault((instance.replica, instance.role), []).append(instance)
        for dead in places.values():
            for instance in sorted(dead, key=lambda one: (one.revision, one.attempt))[:-_KEPT]:
                with suppress(OSError):  # It is tried again with the next look.
                    self._remove(self.folder(instance))


def _check_job(name: str) -> None:
    """Refuse a name from the store that, used in a path, could lead out of its folder."""
    replica = ReplicaId.find(name)
    fault = name_fault(replica.job) if replica is not None else repr(name)
    if fault is not None:
        raise RefusedStartError(f"no job can have this name: {fault}")


def _signal_name(number: int) -> str:
    """Return the name of a signal; of most real-time signals there is only the number.

    >>> _signal_name(9), _signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
