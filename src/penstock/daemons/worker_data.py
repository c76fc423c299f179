"""The data of a job that is with its node, in its worker's hands: restored first, copied while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock.connect.log_ends import LogSource
from penstock.daemons.instance import WorkerConfig
from penstock.daemons.keeping import SnapshotUploader, snapshot_clients
from penstock.daemons.restoration import HomeRestore
from penstock.daemons.worker_link import StoreLink
from penstock.errors import JobFailedError, SupersededError
from penstock.graph.job import Job
from penstock.log import Log
from penstock.logs import get_logger
from penstock.snapshots.restoring import not_restored

_LAST_SNAPSHOT_SECONDS = 20.0
_TOLD_SECONDS = 5.0
_LOOK_SECONDS = 0.5

_log = get_logger(__name__)


class JobHome:
    """What a worker does about its job's data, from its start to its end."""

    def __init__(self, instance: WorkerConfig, link: StoreLink, token: str) -> None:
        self._instance = instance
        self._link = link
        self._token = token
        self._home = Path(instance.storage)
        self._restoration = HomeRestore(instance, token, link)
        self._keeping: SnapshotUploader | None = None

    def begin(self) -> None:
        """Begin to see to it that the data is here, while Spark starts."""
        self._restoration.start()

    def is_restored(self) -> bool:
        """Whether the home is as it must be. Raises what makes that impossible."""
        return self._restoration.wait(0.0)

    def give_up(self) -> None:
        """Restore no more: the job shall not run here."""
        self._restoration.cancel()

    def create_input_logs(self, job: Job) -> None:
        """Make the logs that a job reads from its home, where they are not there yet.

        Nobody could have made them before: which node the home is on is decided when the job is submitted.
        """
        self._home.mkdir(mode=0o700, exist_ok=True)
        for vertex in job.vertices:
            if isinstance(vertex.operator, LogSource) and vertex.operator.root is None:
                Log.create(vertex.operator.folder, exist_ok=True)

    def start_uploads(self, go_on: Callable[[], bool]) -> None:
        """Begin to copy: the job's folder is this worker's now.

        That it is here is told before anything is done here: else a leader could let the job go on from data
        that lacks it. Raises JobFailedError when another node has newer data. A store that is away holds a
        job up that came from elsewhere; one that has its data here waits for a while only.
        """
        known = self._link.kept
        self._keeping = SnapshotUploader(
            self._instance, self._link, snapshot_clients(self._token, os.environ)
        )
        self._keeping.start()
        waited = 0.0
        while not self._keeping.wait_origin_written(_LOOK_SECONDS):
            waited += _LOOK_SECONDS
            if self._link.outdated:
                not_restored(self._home)  # What was restored is of yesterday: the next attempt looks again.
                raise JobFailedError(f"the data of job {self._instance.job!r} is newer on another node")
            if not go_on():
                raise SupersededError(f"job {self._instance.job!r} is not wanted here any more")
            if waited >= _TOLD_SECONDS and known is not None and known.origin == self._instance.node:
                _log.warning("not told yet where the data is", seconds=waited)
                return

    def finish(self) -> None:
        """Have a copy of all that the job has done: it has stopped, and nobody goes on with it here."""
        if self._keeping is None:
            return
        if not self._keeping.finish(_LAST_SNAPSHOT_SECONDS):
            _log.warning("last snapshot not sent")
        self._link.wait_backup_status(_TOLD_SECONDS)

    def close(self) -> None:
        """Leave everything as it is."""
        if self._keeping is not None:
            self._keeping.stop()
