"""Spark-less workers that are to be killed. As a program: forks one for each request on its standard input.

It is the worker of a cluster in all but two things: batches run in its own process, and the store, which is
in memory, holds the worker's own assignment and nothing else. A fork takes a fiftieth of the time that a
Python takes which has to import everything, so hundreds of them can be killed in a minute.

A worker notes the phase that it is in where others can read it after its death, and may be told to kill
itself: when it enters a phase, or at a change of a file.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import kill_job

from penstock.cluster.document_codec import encode
from penstock.coord import store_paths
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.driver import batch_committer, batch_planner, job_handle, query_launch
from penstock.engine.driver.job_start import start_job
from penstock.engine.execution import keyed_bucket
from penstock.engine.storage import ledger
from penstock.keyring import Keyring
from penstock.log import Log, log_folder
from penstock.record import Record
from penstock.replicas.agreement import agreement_folder, batch_agreement, replica_catch_up
from penstock.replicas.worker import replica_worker
from penstock.testing import local_engine
from penstock.testing.local_engine_worker import LocalEngine
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from penstock.worker import worker_lifecycle
from penstock.worker.worker_main import exit_worker, main

STARTING = "starting"
TAKING_OVER = "taking over"
COMING_IN = "coming in"
COPYING = "copying"
SETTLING = "settling"
CHANGING_BUCKETS = "changing buckets"
PLANNING = "planning"
COMPUTING = "computing"
USER_CODE = "user code"
STAGED = "staged"
"""Everything is computed and staged, and the batch has not happened."""
AGREED = "agreed"
"""Replicas know whose output counts, and it is not out."""
ENTERED = "entered"
"""The ledger has the batch."""
PUBLISHING = "publishing"
PUBLISHED = "published"

PHASES = (
    STARTING,
    TAKING_OVER,
    COMING_IN,
    COPYING,
    SETTLING,
    CHANGING_BUCKETS,
    PLANNING,
    COMPUTING,
    USER_CODE,
    STAGED,
    AGREED,
    ENTERED,
    PUBLISHING,
    PUBLISHED,
)

PHASE_FILE = "phase"
_CHANGES = ("link", "rename", "replace", "unlink", "mkdir")
"""The functions of ``os`` that make a change visible to others."""


@dataclass(frozen=True)
class Doom:
    """When a worker kills itself."""

    phase: str = ""
    """In which phase: when it comes to it for the n-th time,"""
    entrance: int = 1
    change: int = 0
    """or just before its n-th change of a file,"""
    after: bool = False
    """or just after it. Neither: somebody else kills it."""


class Fate:
    """The phase of this process, and its end."""

    def __init__(self, folder: Path, doom: Doom) -> None:
        self._doom = doom
        self._phase = STARTING
        self._entered = Counter[str]()
        self._changes = 0
        self._file = (folder / PHASE_FILE).open("w+b")
        self._file.write(b"\0")
        self._file.flush()
        self._shown = mmap.mmap(self._file.fileno(), 1)

    def enter(self, phase: str) -> str:
        """Begin a phase and return the one before it."""
        before, self._phase = self._phase, phase
        self._shown[0] = PHASES.index(phase)
        self._entered[phase] += 1
        if phase == self._doom.phase and self._entered[phase] == self._doom.entrance:
            _die()
        return before

    def changing(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that changes files with the death before or after it."""

        def made(*arguments: Any, **named: Any) -> Any:
            self._changes += 1
            due = self._changes == self._doom.change
            if due and not self._doom.after:
                _die()
            try:
                return change(*arguments, **named)
            finally:
                if due:
                    _die()

        return made

    def around(self, place: Any, name: str, phase: str, *, then: str = "") -> None:
        """Note a phase while a function runs; afterwards another one, or again the one before."""
        function = getattr(place, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            before = self.enter(phase) if phase else ""
            try:
                return function(*arguments, **named)
            finally:
                self.enter(then or before)

        setattr(place, name, noted)

    def install(self) -> None:
        """Have everything in this process noted."""
        self.around(worker_lifecycle, "take_over", TAKING_OVER, then=STARTING)
        self.around(replica_worker.ReplicaWorker, "join_replicas", COMING_IN, then=STARTING)
        self.around(replica_catch_up.Copier, "copy", COPYING)
        self.around(job_handle, "resume_job", SETTLING, then=STARTING)
        self.around(query_launch, "change_buckets", CHANGING_BUCKETS)
        self.around(batch_planner.BatchPlanner, "latest", PLANNING, then=PLANNING)
        self.around(local_engine.LocalQuery, "_attempt", COMPUTING, then=STAGED)
        self.around(keyed_bucket, "run_update", USER_CODE)
        self.around(agreement_folder.AgreementFolder, "commit", STAGED, then=AGREED)
        self.around(ledger.Ledger, "commit", "", then=ENTERED)
        for place in (batch_committer, batch_agreement):
            self.around(place, "publish", PUBLISHING, then=PUBLISHED)
        for name in _CHANGES:
            setattr(os, name, self.changing(getattr(os, name)))


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives this")


def read_phase(folder: Path) -> str:
    """Return the phase that a worker was in last."""
    try:
        return PHASES[(folder / PHASE_FILE).read_bytes()[0]]
    except (FileNotFoundError, IndexError):
        return STARTING


def _store(instance: WorkerConfig, ring: Keyring) -> MemoryStore:
    store = MemoryStore(MemoryEnsemble())
    store.create(f"{store_paths.ASSIGNMENTS}/{instance.job}", encode(instance.assignment))
    return store


def _become(folder: str, environment: dict[str, str], doom: Doom) -> NoReturn:
    """Be a worker, and nothing else."""
    try:
        os.setsid()
        os.environ.update(environment)
        Fate(Path(folder), doom).install()
        exit_worker(main([folder], _store, LocalEngine))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def start_request(folder: Path, environment: dict[str, str], doom: Doom) -> str:
    """Return the request to start a worker. The answer is its process id."""
    return json.dumps({"folder": str(folder), "environment": environment, "doom": asdict(doom)})


def _warm_up() -> None:
    """Run the job once in a home of its own, so that all is imported that is imported only when needed."""
    Log.create(log_folder("input")).append([Record(None, 1)])
    with start_job(kill_job.job, local_engine.LocalRuntime) as running:
        running.wait()


def _serve() -> None:
    """Start workers, kill them, and say how they have ended; all are killed at the end of the input."""
    _warm_up()
    alive: set[int] = set()
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            answer: int | None
            if "folder" in asked:
                answer = os.fork()
                if answer == 0:
                    _become(asked["folder"], asked["environment"], Doom(**asked["doom"]))
                alive.add(answer)
            else:
                pid = asked["pid"]
                if asked["kill"]:
                    os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0 if asked["kill"] else os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
                alive -= {ended}
            print(json.dumps(answer), flush=True)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
