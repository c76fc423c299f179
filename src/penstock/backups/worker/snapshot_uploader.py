"""Takes snapshots of a job's node-kept data and uploads them while the job runs.

A thread takes a snapshot about every two seconds if anything has changed, and sends what is new to the node
that the job's location names. Errors are logged and retried; the job is not affected.
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
"""Seconds between two snapshots; what came since the last one is lost with its node."""
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 30.0
_CONFIRM = 300.0
"""Seconds after which a store is asked whether it still has what has not changed since."""
_STALE = 412
"""What a store answers that has a snapshot of a later worker."""
_TOLD = 5.0
_LOOK = 0.2
_ABORT = 5.0

_log = get_logger(__name__)


class SnapshotSender(Protocol):
    """What is needed of a SnapshotClient."""

    def send(
        self,
        manifest: Manifest,
        open_piece: Callable[[SnapshotFile], BinaryIO],
        stop: threading.Event | None = None,
    ) -> Sent:
        """Send a snapshot."""

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Have all snapshots of a job removed that were not sent by a later worker."""

    def close(self) -> None:
        """Hang up."""


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
    """Keeps a copy of a job's data on another node, from when it is started until it is told to end."""

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
        self._anew = False
        """Whether what a store has of the job, if anything, is of a time that was forgotten."""
        self._sender: tuple[str, SnapshotSender] | None = None
        self._last: Manifest | None = None
        self._sent_at = 0.0
        self._leaving: dict[str, str] = {}
        """Stores that are needed no more, with their addresses."""
        self._troubles = 0
        self._said = ""
        self._origin_written = threading.Event()
        self._ending = threading.Event()
        self._abort = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeping", daemon=True)

    def start(self) -> None:
        """Begin. The job's folder must be this worker's."""
        self._thread.start()

    def wait_origin_written(self, timeout: float) -> bool:
        """Wait until the store knows that the data is here, and whether it came to it."""
        until = time.monotonic() + timeout
        return self._origin_written.wait(timeout) and self._link.wait_backup_status(
            max(until - time.monotonic(), 0.0)
        )

    def finish(self, timeout: float) -> bool:
        """Take a last snapshot, of a job that has stopped; whether it was sent in time."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        done = not self._thread.is_alive() and not self._troubles
        self.stop()
        return done

    def stop(self) -> None:
        """Leave it as it is."""
        self._abort.set()
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_ABORT)

    def _run(self) -> None:
        try:
            self._write_origin()
            while not self._ending.is_set():
                location = self._link.location
                self._rest(self._step(), location)
            if not self._abort.is_set():
                self._step()
        except Exception as error:  # A mistake of ours must not end the job; its copy stays as it is.
            _log.error("snapshot uploader failed", reason=f"{type(error).__name__}: {error}", exc_info=True)
        finally:
            if self._sender is not None:
                self._sender[1].close()

    def _rest(self, seconds: float, location: BackupLocation | None) -> None:
        """Wait for the next snapshot; another place is tried at once."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._link.location == location:
            if self._ending.wait(min(left, _LOOK)):
                return

    def _write_origin(self) -> None:
        """Say where the data is, once it is known what was said before."""
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
            self._anew = assignment.fresh
            if known.store:
                self._leaving[known.store] = known.store_url
        self._link.set_backup_status(self._kept)
        self._origin_written.set()

    def _step(self) -> float:
        """Take a snapshot and send it, if there is something to send; return when to do so again."""
        location = self._link.location
        if self._link.outdated:
            self._log_trouble("a later worker has the job")
            return self._every
        if location is None or not location.store_url or location.store == self._node:
            self._log_trouble("no node keeps a copy yet")
            return self._every
        try:
            self._copy_to(location)
            self._forget_others(location)
        except TransferStoppedError:
            return 0.0
        except (PenstockError, OSError) as error:
            return self._retry(location, error)
        self._troubles = 0
        self._log_trouble("")
        return self._every

    def _retry(self, location: BackupLocation, error: Exception) -> float:
        self._troubles += 1
        self._log_trouble(str(error), store=location.store)
        if isinstance(error, NodeRequestError):
            self._hang_up()
        harmless = isinstance(error, CutError) or (
            isinstance(error, NodeRequestError) and (error.again or error.status == _STALE)
        )
        if not harmless:
            # Perhaps a file here is not what it was when it was looked at.
            if self._cutter is not None:
                self._cutter.distrust()
            self._last = None
        return float(min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(self._troubles - 1, 10)))

    def _copy_to(self, location: BackupLocation) -> None:
        elsewhere = location.store != self._kept.store
        confirm = time.monotonic() - self._sent_at >= _CONFIRM
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
        sender = self._to(location.store_url)
        if self._anew:
            self._remove_backup(sender)
            self._anew = False
        sent = sender.send(manifest, self._cutter.open, self._abort)
        self._note(location, manifest, sent, time.monotonic() - began)

    def _note(self, location: BackupLocation, manifest: Manifest, sent: Sent, seconds: float) -> None:
        now = time.monotonic()
        before = self._kept
        if before.store and before.store != location.store:
            self._leaving[before.store] = before.store_url
        lately = sent.bytes_sent / max(seconds, now - self._sent_at if self._sent_at else seconds, 0.001)
        self._kept = replace(
            before,
            store=location.store,
            store_url=location.store_url,
            number=sent.number,
            batch=manifest.batch,
            bytes=manifest.total_bytes,
            sent=sent.bytes_sent,
            at=manifest.at,
            rate=round(0.7 * before.rate + 0.3 * lately if before.rate else lately, 1),
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
        """Have stores that had the copy before remove it, once everybody can know who has it now."""
        self._leaving.pop(location.store, None)
        if not self._leaving or not self._link.wait_backup_status(_TOLD):
            return
        for store, url in sorted(self._leaving.items()):
            del self._leaving[store]
            sender = self._connect(url)
            try:
                self._remove_backup(sender)
                _log.info("old copy removed", store=store)
            except PenstockError as error:
                # It is gone, or will be told by who looks after it: a copy too many harms nobody.
                _log.warning("old copy not removed", store=store, reason=str(error))
            finally:
                sender.close()

    def _remove_backup(self, sender: SnapshotSender) -> None:
        sender.forget(self._job, revision=self._instance.revision, attempt=self._instance.attempt)

    def _to(self, url: str) -> SnapshotSender:
        if self._sender is None or self._sender[0] != url:
            self._hang_up()
            self._sender = (url, self._connect(url))
        return self._sender[1]

    def _hang_up(self) -> None:
        if self._sender is not None:
            self._sender[1].close()
            self._sender = None

    def _log_trouble(self, trouble: str, **facts: str) -> None:
        """Tell a trouble once, and that it is over."""
        if trouble == self._said:
            return
        if trouble:
            _log.warning("snapshot not sent", reason=trouble, **facts)
        else:
            _log.info("snapshots resumed")
        self._said = trouble


def snapshot_clients(token: str, environment: Mapping[str, str]) -> Callable[[str], SnapshotSender]:
    """Return what connects to a store, and sends no faster than the environment allows."""
    rate = _rate(environment.get(RATE, ""))
    return lambda url: SnapshotClient(url, token, rate=rate)


def _rate(text: str) -> float | None:
    try:
        return float(read_size(text)) if text else None
    except SettingError as error:
        _log.warning("no limit for snapshots", reason=f"{RATE}: {error}")
        return None
