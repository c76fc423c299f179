"""The data of a job that is with its node, in its worker's hands: restored first, copied while it runs."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.connect.log_ends import LogSource
from penstock.daemons.instance import Instance
from penstock.daemons.keeping import Keeping, clients
from penstock.daemons.restoration import Restoration, wanted_restore
from penstock.daemons.worker_link import Link
from penstock.graph.job import Job
from penstock.log import Log
from penstock.logs import get_logger

_LAST_SNAPSHOT_SECONDS = 20.0
_TOLD_SECONDS = 3.0

_log = get_logger(__name__)


class WorkerData:
    """What a worker does about its job's data, from its start to its end."""

    def __init__(self, instance: Instance, link: Link, token: str) -> None:
        self._instance = instance
        self._link = link
        self._token = token
        self._home = Path(instance.storage)
        self._restoration: Restoration | None = None
        self._keeping: Keeping | None = None

    def begin(self) -> None:
        """Begin to restore what the assignment says, while Spark starts."""
        if self._instance.assignment.restore is not None:
            self._restore()

    def there(self) -> bool:
        """Whether the home is as it must be. Raises what makes that impossible."""
        if self._restoration is None and not (self._home / "cluster-jobs" / self._instance.job).exists():
            # Either the job is new, or this node has lost what it had: the store knows.
            if not self._link.view.known:
                return False
            self._restore()
        return self._restoration is None or self._restoration.wait(0.0)

    def _restore(self) -> None:
        wanted = wanted_restore(self._instance, self._link.kept)
        if wanted is not None:
            self._restoration = Restoration(self._instance, wanted, self._token)
            self._restoration.start()

    def give_up(self) -> None:
        """Restore no more: the job shall not run here."""
        if self._restoration is not None:
            self._restoration.cancel()

    def make_inputs(self, job: Job) -> None:
        """Make the logs that a job reads from its home, where they are not there yet.

        Nobody could have made them before: which node the home is on is decided when the job is submitted.
        """
        self._home.mkdir(mode=0o700, exist_ok=True)
        for vertex in job.vertices:
            if isinstance(vertex.operator, LogSource) and vertex.operator.root is None:
                Log.create(vertex.operator.folder, exist_ok=True)

    def keep(self) -> None:
        """Begin to copy: the job's folder is this worker's now."""
        self._keeping = Keeping(self._instance, self._link, clients(self._token, os.environ))
        self._keeping.start()

    def finish(self) -> None:
        """Have a copy of all that the job has done: it has stopped, and nobody goes on with it here."""
        if self._keeping is None:
            return
        if not self._keeping.finish(_LAST_SNAPSHOT_SECONDS):
            _log.warning("last snapshot not sent")
        self._link.kept_told(_TOLD_SECONDS)

    def close(self) -> None:
        """Leave everything as it is."""
        if self._keeping is not None:
            self._keeping.stop()
