"""The home of a job with node-kept data: restored before the job runs, backed up while it runs.

A worker uses :class:`JobHome`. The master decides where the data and its backup are.
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
from penstock.backups.snapshots.snapshot_restore import Restored, discard_restore, needs_restore, restore
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

_POLL_INTERVAL = 0.05
_FIRST_RETRY = 0.5
_MAX_RETRY = 10.0

UNRESERVED_RATE = 0.1 * UNKNOWN_BANDWIDTH
"""Bytes a second of a transfer without reserved bandwidth.

The plan may have been to run the job on the node with its backup, but it was placed elsewhere; or a node
fetches back the data that its own disk has lost. The location controller has reserved links for other
transfers, and leaves a tenth of each link to backups even if it is busy (see ``location_controller``). A
worker does not know the bandwidths of both nodes, so it uses that share of the bandwidth that the controller
assumes for unknown links.
"""

_log = get_logger(__name__)


def restore_source_for(
    assignment: Assignment, node: str, kept: BackupStatus | None, *, has_data: bool
) -> RestoreSource | None:
    """Return the backup that a worker must restore before it runs its job; None if none is needed.

    This is the one named by the assignment, unless a worker on this node has used the data since. Otherwise
    it is the backup of data that this node itself has lost, because its disk was replaced.
    """
    here = kept if kept is not None and kept.origin == node else None
    given = assignment.restore
    if given is not None and (here is None or here.revision <= given.revision):
        if kept is not None and kept.store and kept.revision == given.revision:
            # The worker that was considered lost may have continued for a while and moved its backup.
            return replace(given, store=kept.store, url=kept.store_url)
        return given
    if here is None or not here.store or has_data or is_forgotten(assignment, here):
        return None
    return RestoreSource(here.store, here.store_url, here.revision)


def _base(instance: WorkerConfig) -> Path:
    return Path(instance.storage) / "cluster-jobs" / instance.job


class HomeRestore:
    """Restores the home of a job in a thread, if that is necessary.

    If the store does not answer, the restore is retried until it does or until it is cancelled, because the
    backup is the only one.
    """

    def __init__(
        self, instance: WorkerConfig, token: str, link: StoreLink, *, store_timeout: float = TAKE_OVER_AFTER
    ) -> None:
        self._instance = instance
        self._token = token
        self._link = link
        self._store_timeout = store_timeout
        self._home = Path(instance.storage)
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="restoring", daemon=True)

    def start(self) -> None:
        """Start the restore."""
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait for the restore and return whether it is done; raise its error if it failed."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def cancel(self) -> None:
        """Stop the restore: the next attempt resumes it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._wait_for_backup_status()
            wanted = restore_source_for(
                self._instance.assignment,
                self._instance.node,
                self._link.kept,
                has_data=_base(self._instance).exists(),
            )
            if wanted is not None and needs_restore(self._home, wanted.revision):
                self._restore_with_retries(wanted)
        except TransferStoppedError:
            _log.info("restore stopped")
        except Exception as error:
            self._error = error

    def _wait_for_backup_status(self) -> None:
        """Wait until the backup status has been read from the store, if the restore depends on it."""
        given = self._instance.assignment.restore
        if given is None and _base(self._instance).exists():
            return
        # With a backup named by the assignment, continue without the store after a while. Otherwise the job
        # is new or this node has lost the data, and only the store can tell which.
        until = time.monotonic() + (self._store_timeout if given is not None else float("inf"))
        while not self._link.view.known and time.monotonic() < until:
            if self._stop.wait(_POLL_INTERVAL):
                raise TransferStoppedError("the restore of the job's data was cancelled")

    def _restore_with_retries(self, wanted: RestoreSource) -> None:
        pause = _FIRST_RETRY
        while True:
            began = time.monotonic()
            try:
                restored = self._restore(wanted)
            except NodeRequestError as error:
                if not error.again:
                    raise
                _log.warning(
                    "restore failed, retrying", store=wanted.store, reason=str(error), again_in=pause
                )
                if self._stop.wait(pause):
                    raise TransferStoppedError("the restore of the job's data was cancelled") from error
                pause = min(_MAX_RETRY, 2 * pause)
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
        # A rate above the reserved one would take bandwidth that is reserved for other transfers.
        with SnapshotClient(wanted.url, self._token, rate=wanted.rate or UNRESERVED_RATE) as client:
            return restore(self._home, instance.job, client=client, revision=wanted.revision, stop=self._stop)


_LAST_SNAPSHOT_SECONDS = 20.0
_STATUS_WRITE_SECONDS = 5.0
_ORIGIN_POLL_SECONDS = 0.5


class JobHome:
    """Restores and backs up a job's data, from the start of its worker to its end."""

    def __init__(self, instance: WorkerConfig, link: StoreLink, token: str) -> None:
        self._instance = instance
        self._link = link
        self._token = token
        self._home = Path(instance.storage)
        self._restore = HomeRestore(instance, token, link)
        self._uploader: SnapshotUploader | None = None

    def begin(self) -> None:
        """Start the restore, in parallel to the start of Spark."""
        self._restore.start()

    def is_restored(self) -> bool:
        """Return whether the home is ready. Raises the error of a failed restore."""
        return self._restore.wait(0.0)

    def give_up(self) -> None:
        """Cancel the restore: the job will not run here."""
        self._restore.cancel()

    def create_input_logs(self, job: Job) -> None:
        """Create the logs that a job reads from its home, if they do not exist.

        They cannot be created earlier, because the home's node is chosen only after the job is submitted.
        """
        self._home.mkdir(mode=0o700, exist_ok=True)
        for vertex in job.vertices:
            if isinstance(vertex.operator, LogSource) and vertex.operator.root is None:
                Log.create(vertex.operator.folder, exist_ok=True)

    def start_uploads(self, go_on: Callable[[], bool]) -> None:
        """Start the uploads; the job's folder must be this worker's.

        This node is recorded as the origin of the data before the job does anything: otherwise a leader could
        continue the job from data without this worker's results. Raises JobFailedError when another node has
        newer data. While the store does not answer, a job whose data comes from another node has to wait; a
        job whose data was already here continues after a while.
        """
        known = self._link.kept
        self._uploader = SnapshotUploader(
            self._instance, self._link, snapshot_clients(self._token, os.environ)
        )
        self._uploader.start()
        waited = 0.0
        while not self._uploader.wait_origin_written(_ORIGIN_POLL_SECONDS):
            waited += _ORIGIN_POLL_SECONDS
            if self._link.outdated:
                discard_restore(self._home)  # The restored data is outdated: the next attempt restores again.
                raise JobFailedError(f"the data of job {self._instance.job!r} is newer on another node")
            if not go_on():
                raise SupersededError(f"job {self._instance.job!r} is no longer wanted on this node")
            if waited >= _STATUS_WRITE_SECONDS and known is not None and known.origin == self._instance.node:
                _log.warning("location of the data not written to the store yet", seconds=waited)
                return

    def finish(self) -> None:
        """Send a last snapshot of a job that has stopped."""
        if self._uploader is None:
            return
        if not self._uploader.finish(_LAST_SNAPSHOT_SECONDS):
            _log.warning("last snapshot not sent")
        self._link.wait_backup_status(_STATUS_WRITE_SECONDS)

    def close(self) -> None:
        """Stop the uploads without a last snapshot."""
        if self._uploader is not None:
            self._uploader.stop()
