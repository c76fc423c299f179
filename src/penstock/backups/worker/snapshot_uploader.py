"""Takes snapshots of a job's node-kept data and uploads them while the job runs.

A thread takes a snapshot about every two seconds if anything has changed, and sends new objects to the node
of the job's backup location. Errors are logged and retried; the job is not affected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Protocol

from penstock.backups.data_affinity import is_forgotten
from penstock.backups.snapshots.snapshot_client import Sent, SnapshotClient
from penstock.backups.snapshots.snapshot_cutter import CutError, SnapshotCutter
from penstock.backups.snapshots.snapshot_errors import TransferStoppedError
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import WorkerConfig
from penstock.errors import PenstockError, SettingError
from penstock.node_client import NodeRequestError
from penstock.process_logs.process_log import get_logger
from penstock.setting_values import read_size

RATE = "PENSTOCK_SNAPSHOT_RATE"
SNAPSHOT_SECONDS = 2.0
"""Seconds between two snapshots; later changes are lost together with the node."""
_FIRST_RETRY = 1.0
_MAX_RETRY = 30.0
_CONFIRM_INTERVAL = 300.0
"""Seconds after which an unchanged snapshot is sent again, to check that the store still has it."""
_STALE_STATUS = 412
"""The HTTP status of a store that has a snapshot of a later worker."""
_STATUS_WRITE_TIMEOUT = 5.0
_POLL_INTERVAL = 0.2
_ABORT_TIMEOUT = 5.0

_log = get_logger(__name__)


class SnapshotSender(Protocol):
    """The methods of SnapshotClient that the uploader uses."""

    def send(
        self,
        manifest: Manifest,
        open_piece: Callable[[SnapshotFile], BinaryIO],
        stop: threading.Event | None = None,
    ) -> Sent:
        """Send a snapshot."""

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Remove all snapshots of a job, unless a later worker has sent one."""

    def close(self) -> None:
        """Close the connection."""


def initial_backup_status(
    assignment: Assignment, node: str, attempt: int, known: BackupStatus | None
) -> BackupStatus:
    """Return the backup status that a worker writes first.

    A known backup is kept if this node's data is its source or was restored from it. A job that starts from
    scratch has no backup.

    >>> here = Assignment("count", 1, 4, 1, "", "", "n1")
    >>> there = BackupStatus("count", "n1", 3, 1, store="n2", number=7, batch=41)
    >>> initial_backup_status(here, "n1", 1, there).number
    7
    >>> initial_backup_status(replace(here, node="n3"), "n3", 1, there).number
    0
    """
    none = BackupStatus(assignment.job, node, assignment.revision, attempt)
    if known is None or (known.origin != node and assignment.restore is None):
        return none
    if is_forgotten(assignment, known):
        return none
    return replace(known, origin=node, revision=assignment.revision, attempt=attempt)


class SnapshotUploader:
    """Keeps a backup of a job's data on another node up to date until it is stopped."""

    def __init__(
        self,
        instance: WorkerConfig,
        link: StoreLink,
        connect: Callable[[str], SnapshotSender],
        *,
        every: float = SNAPSHOT_SECONDS,
    ) -> None:
        self._job, self._node = instance.job, instance.node
        self._instance = instance
        self._link = link
        self._connect = connect
        self._every = every
        self._cutter: SnapshotCutter | None = None
        self._kept = initial_backup_status(instance.assignment, instance.node, instance.attempt, None)
        self._discard_old = False
        """Whether the backups of the job must be removed first, because it starts from scratch."""
        self._sender: tuple[str, SnapshotSender] | None = None
        self._last: Manifest | None = None
        self._sent_at = 0.0
        self._leaving: dict[str, str] = {}
        """Stores whose backup is no longer needed, with their URLs."""
        self._failures = 0
        self._logged_problem = ""
        self._origin_written = threading.Event()
        self._ending = threading.Event()
        self._abort = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeping", daemon=True)

    def start(self) -> None:
        """Start the thread. The job's folder must be this worker's."""
        self._thread.start()

    def wait_origin_written(self, timeout: float) -> bool:
        """Wait until the origin of the data is written to the store; return whether it is."""
        until = time.monotonic() + timeout
        return self._origin_written.wait(timeout) and self._link.wait_backup_status(
            max(until - time.monotonic(), 0.0)
        )

    def finish(self, timeout: float) -> bool:
        """Take a last snapshot of a job that has stopped; return whether it was sent in time."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        done = not self._thread.is_alive() and not self._failures
        self.stop()
        return done

    def stop(self) -> None:
        """Stop the thread without a last snapshot."""
        self._abort.set()
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_ABORT_TIMEOUT)

    def _run(self) -> None:
        try:
            self._write_origin()
            while not self._ending.is_set():
                location = self._link.location
                self._pause(self._step(), location)
            if not self._abort.is_set():
                self._step()
        except Exception as error:  # A bug in the uploader must not end the job; the backup stays unchanged.
            _log.error("snapshot uploader failed", reason=f"{type(error).__name__}: {error}", exc_info=True)
        finally:
            if self._sender is not None:
                self._sender[1].close()

    def _pause(self, seconds: float, location: BackupLocation | None) -> None:
        """Wait for the next snapshot; return early if the backup location changes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._link.location == location:
            if self._ending.wait(min(left, _POLL_INTERVAL)):
                return

    def _write_origin(self) -> None:
        """Write the location of the data to the store, after reading the previous backup status."""
        while not self._link.view.known and not self._ending.wait(self._every / 10):
            pass
        known = self._link.kept
        assignment = self._instance.assignment
        self._kept = initial_backup_status(assignment, self._node, self._instance.attempt, known)
        later = known is not None and (known.revision, known.attempt) > (
            self._instance.revision,
            self._instance.attempt,
        )
        if known is not None and not later and not self._kept.store:
            self._discard_old = assignment.fresh
            if known.store:
                self._leaving[known.store] = known.store_url
        self._link.set_backup_status(self._kept)
        self._origin_written.set()

    def _step(self) -> float:
        """Take a snapshot and send it if it has changed; return the seconds until the next step."""
        location = self._link.location
        if self._link.outdated:
            self._log_problem("a later worker has the job")
            return self._every
        if location is None or not location.store_url or location.store == self._node:
            self._log_problem("no node is assigned as backup location yet")
            return self._every
        try:
            self._copy_to(location)
            self._forget_others(location)
        except TransferStoppedError:
            return 0.0
        except (PenstockError, OSError) as error:
            return self._retry(location, error)
        self._failures = 0
        self._log_problem("")
        return self._every

    def _retry(self, location: BackupLocation, error: Exception) -> float:
        self._failures += 1
        self._log_problem(str(error), store=location.store)
        if isinstance(error, NodeRequestError):
            self._disconnect()
        transient = isinstance(error, CutError) or (
            isinstance(error, NodeRequestError) and (error.again or error.status == _STALE_STATUS)
        )
        if not transient:
            # A held file may differ from its digest: compute all digests again.
            if self._cutter is not None:
                self._cutter.invalidate()
            self._last = None
        return float(min(_MAX_RETRY, _FIRST_RETRY * 2 ** min(self._failures - 1, 10)))

    def _copy_to(self, location: BackupLocation) -> None:
        elsewhere = location.store != self._kept.store
        confirm = time.monotonic() - self._sent_at >= _CONFIRM_INTERVAL
        began = time.monotonic()
        if self._cutter is None:
            home = Path(self._instance.storage)
            self._cutter = SnapshotCutter(home, self._job, home.parent / "cut")
        manifest = self._cutter.cut(
            number=self._kept.number + 1,
            revision=self._instance.revision,
            attempt=self._instance.attempt,
            before=None if elsewhere or confirm else self._last,
            now=time.time(),
        )
        if manifest is None:
            return
        sender = self._sender_to(location.store_url)
        if self._discard_old:
            self._remove_backup(sender)
            self._discard_old = False
        sent = sender.send(manifest, self._cutter.open, self._abort)
        self._record_sent(location, manifest, sent, time.monotonic() - began)

    def _record_sent(self, location: BackupLocation, manifest: Manifest, sent: Sent, seconds: float) -> None:
        now = time.monotonic()
        before = self._kept
        if before.store and before.store != location.store:
            self._leaving[before.store] = before.store_url
        current = sent.bytes_sent / max(seconds, now - self._sent_at if self._sent_at else seconds, 0.001)
        self._kept = replace(
            before,
            store=location.store,
            store_url=location.store_url,
            number=sent.number,
            batch=manifest.batch,
            bytes=manifest.total_bytes,
            sent=sent.bytes_sent,
            at=manifest.at,
            rate=round(0.7 * before.rate + 0.3 * current if before.rate else current, 1),
        )
        self._last, self._sent_at = manifest, now
        self._link.set_backup_status(self._kept)
        _log.info(
            "snapshot sent",
            store=location.store,
            number=sent.number,
            batch=manifest.batch,
            bytes=manifest.total_bytes,
            sent=sent.bytes_sent,
            seconds=round(seconds, 3),
        )

    def _forget_others(self, location: BackupLocation) -> None:
        """Remove the backup from former stores, after the new backup status has been written."""
        self._leaving.pop(location.store, None)
        if not self._leaving or not self._link.wait_backup_status(_STATUS_WRITE_TIMEOUT):
            return
        for store, url in sorted(self._leaving.items()):
            del self._leaving[store]
            sender = self._connect(url)
            try:
                self._remove_backup(sender)
                _log.info("old backup removed", store=store)
            except PenstockError as error:
                # Not retried: an unused backup does no harm.
                _log.warning("old backup not removed", store=store, reason=str(error))
            finally:
                sender.close()

    def _remove_backup(self, sender: SnapshotSender) -> None:
        sender.forget(self._job, revision=self._instance.revision, attempt=self._instance.attempt)

    def _sender_to(self, url: str) -> SnapshotSender:
        if self._sender is None or self._sender[0] != url:
            self._disconnect()
            self._sender = (url, self._connect(url))
        return self._sender[1]

    def _disconnect(self) -> None:
        if self._sender is not None:
            self._sender[1].close()
            self._sender = None

    def _log_problem(self, problem: str, **facts: str) -> None:
        """Log a problem once, and once that it is over."""
        if problem == self._logged_problem:
            return
        if problem:
            _log.warning("snapshot not sent", reason=problem, **facts)
        else:
            _log.info("snapshots resumed")
        self._logged_problem = problem


def snapshot_clients(token: str, environment: Mapping[str, str]) -> Callable[[str], SnapshotSender]:
    """Return a factory of clients, limited to the rate set by the environment."""
    rate = _rate(environment.get(RATE, ""))
    return lambda url: SnapshotClient(url, token, rate=rate)


def _rate(text: str) -> float | None:
    try:
        return float(read_size(text)) if text else None
    except SettingError as error:
        _log.warning("snapshot rate not limited", reason=f"{RATE}: {error}")
        return None
