"""The home of a job that keeps its data with its node.

Restored before the job runs, backed up while it runs. :class:`JobHome` is what a worker calls. Where the
data and its backup are is decided by the master.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.backups.data_affinity import is_forgotten
from penstock.backups.snapshots.snapshot_client import SnapshotClient
from penstock.backups.snapshots.snapshot_errors import TransferStoppedError
from penstock.backups.snapshots.snapshot_restore import Restored, needs_restore, not_restored, restore
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.backups.worker.snapshot_uploader import SnapshotUploader, snapshot_clients
from penstock.cluster.assignment_documents import Assignment, BackupStatus, RestoreSource
from penstock.cluster.worker_policy import TAKE_OVER_AFTER
from penstock.connect.log_connectors import LogSource
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import WorkerConfig
from penstock.errors import JobFailedError, SupersededError
from penstock.graph.job import Job
from penstock.log import Log
from penstock.node_client import NodeRequestError
from penstock.process_logs.process_log import get_logger
from penstock.schedule.backup_location.backup_problem import UNKNOWN_BANDWIDTH

_LOOK = 0.05
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 10.0

UNRESERVED_RATE = 0.1 * UNKNOWN_BANDWIDTH
"""Bytes a second of a transfer for which nothing was set aside.

The plan may have been to run the job where its copy is, and the job has landed elsewhere; or a node fetches
back what its own disk has lost. The location controller has promised links to other transfers, and counts on
a tenth of a link for copies however busy it is (see its ``location_controller``). A worker does not know how
fast the links of both nodes are, so it takes that share of what the controller assumes where nothing else is
known.
"""

_log = get_logger(__name__)


def restore_source_for(
    assignment: Assignment, node: str, kept: BackupStatus | None, *, has_data: bool
) -> RestoreSource | None:
    """Return what a worker has to restore before it runs its job; None if the data is where it shall be.

    That is what the assignment says, as long as nobody has worked on it here since. Else it is the copy of
    what this node itself has lost: its disk was replaced.
    """
    here = kept if kept is not None and kept.origin == node else None
    given = assignment.restore
    if given is not None and (here is None or here.revision <= given.revision):
        if kept is not None and kept.store and kept.revision == given.revision:
            # Who was taken for lost may have gone on for a while, and have had its copy elsewhere in the end.
            return replace(given, store=kept.store, url=kept.store_url)
        return given
    if here is None or not here.store or has_data or is_forgotten(assignment, here):
        return None
    return RestoreSource(here.store, here.store_url, here.revision)


def _base(instance: WorkerConfig) -> Path:
    return Path(instance.storage) / "cluster-jobs" / instance.job


class HomeRestore:
    """Restores the home of a job in a thread, if that has to be done and has not been.

    A store that does not answer is asked again until it does, or until nobody wants it any more: the copy is
    the only one there is.
    """

    def __init__(
        self, instance: WorkerConfig, token: str, link: StoreLink, *, patience: float = TAKE_OVER_AFTER
    ) -> None:
        self._instance = instance
        self._token = token
        self._link = link
        self._patience = patience
        self._home = Path(instance.storage)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="restoring", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait until it is done, and say whether it is; raises what makes it impossible."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def cancel(self) -> None:
        """Leave it as it is: the next attempt goes on from there."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._ask_the_store()
            wanted = restore_source_for(
                self._instance.assignment,
                self._instance.node,
                self._link.kept,
                has_data=_base(self._instance).exists(),
            )
            if wanted is not None and needs_restore(self._home, wanted.revision):
                self._until_done(wanted)
        except TransferStoppedError:
            _log.info("restoring stopped")
        except Exception as error:
            self._error = error

    def _ask_the_store(self) -> None:
        """Wait until the store has said what it knows of the data, if that makes a difference."""
        given = self._instance.assignment.restore
        if given is None and _base(self._instance).exists():
            return
        # Who is told what to restore can do without the store. Else the job is new, or the data is lost here.
        until = time.monotonic() + (self._patience if given is not None else float("inf"))
        while not self._link.view.known and time.monotonic() < until:
            if self._stop.wait(_LOOK):
                raise TransferStoppedError("the job's data is no longer wanted")

    def _until_done(self, wanted: RestoreSource) -> None:
        pause = _FIRST_RETRY
        while True:
            began = time.monotonic()
            try:
                restored = self._restore(wanted)
            except NodeRequestError as error:
                if not error.again:
                    raise
                _log.warning("not restored yet", store=wanted.store, reason=str(error), again_in=pause)
                if self._stop.wait(pause):
                    raise TransferStoppedError("the job's data is no longer wanted") from error
                pause = min(_LONGEST_RETRY, 2 * pause)
                continue
            for reason in restored.skipped:
                _log.warning("snapshot not usable", store=wanted.store, reason=reason)
            _log.info(
                "restored",
                store=wanted.store,
                number=restored.number,
                batch=restored.batch,
                moved=restored.bytes_moved,
                seconds=round(time.monotonic() - began, 3),
            )
            return

    def _restore(self, wanted: RestoreSource) -> Restored:
        instance = self._instance
        if wanted.store == instance.node:
            local = SnapshotStore(Path(instance.snapshots))
            return restore(self._home, instance.job, local=local, revision=wanted.revision, stop=self._stop)
        # More than was set aside for it would be at the cost of what was set aside for others.
        with SnapshotClient(wanted.url, self._token, rate=wanted.rate or UNRESERVED_RATE) as client:
            return restore(self._home, instance.job, client=client, revision=wanted.revision, stop=self._stop)


_LAST_SNAPSHOT_SECONDS = 20.0
_TOLD_SECONDS = 5.0
_LOOK_SECONDS = 0.5


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
                not_restored(self._home)  # The restored data is outdated: the next attempt restores again.
                raise JobFailedError(f"the data of job {self._instance.job!r} is newer on another node")
            if not go_on():
                raise SupersededError(f"job {self._instance.job!r} is no longer wanted on this node")
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
