"""A worker's link to the store, in a separate thread, so that an unreachable store does not delay the job.

The thread writes the worker's state to its ephemeral node, and reads the job's assignment and its other
workers. While the store cannot be reached, the last values read remain valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.backups.data_affinity import is_elsewhere, is_forgotten
from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.worker_documents import Result, WorkerInfo
from penstock.cluster.worker_policy import WorkerView
from penstock.cluster.worker_progress import same_but_progress
from penstock.coord import store_paths
from penstock.coord.conditional_writes import put_result, read_backup_status, write_backup_status
from penstock.coord.coordination_store import MissingError, Session, Store, StoreError
from penstock.errors import PenstockError
from penstock.process_logs.process_log import get_logger

_log = get_logger(__name__)

_PROGRESS_SECONDS = 60.0
"""Minimum time between two writes that only change progress, which the node's report contains sooner."""
_RETRY_SECONDS = 0.5
_CHECK_SECONDS = 1.0


class StoreLink:
    """Publishes a worker's state in the store, and reads what the worker needs from there."""

    def __init__(self, connect: Callable[[], Store], assignment: Assignment, info: WorkerInfo) -> None:
        self._connect = connect
        self._job = info.job
        self._name = f"{info.revision}-{info.attempt}"
        self._path = store_paths.worker(info.job, info.revision, info.attempt)
        self._current = info
        self._published: WorkerInfo | None = None
        self._published_at = 0.0
        self._result: Result | None = None
        self._watched: set[str] = set()
        self._stale = True
        self._closing = False
        self._trouble = ""
        self._keeps_data = assignment.settings.data_location == "node"
        self._assignment = assignment
        self._new_backup_status: BackupStatus | None = None
        self._changed = threading.Condition()
        self.view = WorkerView(assignment, known=False)
        """The assignment and the other workers, as last read."""
        self.location: BackupLocation | None = None
        """Where the backup goes, for a job that keeps its data on its node."""
        self.outdated = False
        """Whether a backup status was rejected because another worker has the job's data now."""
        self.kept: BackupStatus | None = None
        """The backup status of the job's data before this worker wrote one."""
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def start(self) -> None:
        """Start the thread, which connects to the store."""
        self._thread.start()

    def tell(self, info: WorkerInfo) -> None:
        """Publish the worker's state as soon as possible."""
        with self._changed:
            self._current = info
            self._changed.notify_all()

    def wait_worker_info(self, timeout: float) -> bool:
        """Wait until the last state is published; return whether it was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._published == self._current, timeout)

    def set_backup_status(self, kept: BackupStatus) -> None:
        """Publish where the job's data is."""
        with self._changed:
            self._new_backup_status = kept
            self._changed.notify_all()

    def wait_backup_status(self, timeout: float) -> bool:
        """Wait until the last backup status is published; return whether it was in time and not rejected."""
        with self._changed:
            return (
                self._changed.wait_for(lambda: self._new_backup_status is None, timeout) and not self.outdated
            )

    def end(self, result: Result, timeout: float) -> bool:
        """Publish how the job has ended; return whether it was in time."""
        with self._changed:
            self._result = result
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._result is None, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Close the session; the worker's ephemeral node is removed immediately."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        store: Store | None = None
        while not self._closing:
            try:
                if store is None:
                    store = self._connect()
                    store.listen(self._session_changed)
                self._synchronise(store)
            except PenstockError as error:
                self._log_trouble(str(error))
                self._mark_stale(None)
                self._wait_to_retry(_RETRY_SECONDS)
                continue
            self._log_trouble("")
            with self._changed:
                self._changed.wait_for(self._has_work, _CHECK_SECONDS)
        if store is not None:
            with suppress(StoreError):
                store.close()

    def _has_work(self) -> bool:
        written = self._result is None and self._new_backup_status is None
        return self._closing or self._stale or not written or self._has_unpublished()

    def _has_unpublished(self) -> bool:
        due = time.monotonic() - self._published_at >= _PROGRESS_SECONDS
        return self._published != self._current and (
            due or not same_but_progress(self._published, self._current)
        )

    def _log_trouble(self, trouble: str) -> None:
        """Log when the store becomes unreachable, and when it is reachable again."""
        if trouble and not self._trouble:
            _log.warning("store unreachable", reason=trouble)
        elif self._trouble and not trouble:
            _log.info("store reachable again")
        self._trouble = trouble

    def _wait_to_retry(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _session_changed(self, session: Session) -> None:
        if session is not Session.CLOSED:
            self._mark_stale(None)

    def _mark_stale(self, key: str | None) -> None:
        """Note that a node of the store has changed; or, without a key, that the session has."""
        with self._changed:
            if key is None:
                self._published = None
                self._watched.clear()
            else:
                self._watched.discard(key)
            self._stale = True
            self._changed.notify_all()

    def _synchronise(self, store: Store) -> None:
        with self._changed:
            stale, self._stale = self._stale, False
            current, result, unpublished = self._current, self._result, self._has_unpublished()
            kept = self._new_backup_status
        if stale:
            if self._keeps_data:
                self._read_data_location(store)
            self.view = self._read_view(store)
        # A worker whose job was unassigned does not register, nor again after the loss of its session.
        if unpublished and (self._published is not None or self.view.assignment is not None):
            self._publish(store, current)
        if kept is not None:
            if not write_backup_status(store, kept, self._is_elsewhere):
                self.outdated = True
                _log.warning("backup status not written", reason="another worker has the job's data now")
            with self._changed:
                self._new_backup_status = None if self._new_backup_status is kept else self._new_backup_status
                self._changed.notify_all()
        if result is not None:
            put_result(store, result)
            with self._changed:
                self._result = None
                self._changed.notify_all()

    def _read_view(self, store: Store) -> WorkerView:
        path = f"{store_paths.ASSIGNMENTS}/{self._job}"
        node = store.get(path, self._watch(path))
        assignment = self._read_assignment(node.data) if node is not None else None
        folder = f"{store_paths.WORKERS}/{self._job}"
        others = []
        for name in store.children(folder, self._watch(folder)):
            if name == self._name:
                continue
            path = f"{folder}/{name}"
            node = store.get(path, self._watch(path))
            if node is not None:
                others.append(_read_worker(self._job, name, node.data))
        return WorkerView(assignment, tuple(others))

    def _read_assignment(self, data: bytes) -> Assignment | None:
        """Return the assignment; if it cannot be decoded, the last one: that must not end the job."""
        try:
            return decode(Assignment, data)
        except DocumentError as error:
            _log.error("assignment cannot be read: the worker continues unchanged", reason=str(error))
            return self.view.assignment or self._assignment

    def _is_elsewhere(self, known: BackupStatus) -> bool:
        """Return whether another worker has changed the data on another node since this worker started."""
        node, seen = self._current.node, self.kept.number if self.kept is not None else 0
        return is_elsewhere(self._assignment, node, known) or (
            known.origin != node and not is_forgotten(self._assignment, known) and known.number > seen
        )

    def _read_data_location(self, store: Store) -> None:
        path = f"{store_paths.LOCATIONS}/{self._job}"
        node = store.get(path, self._watch(path))
        found: BackupLocation | None = None
        with suppress(DocumentError):
            found = decode(BackupLocation, node.data) if node is not None else None
        self.location = found
        if not self.view.known:
            self.kept = read_backup_status(store, self._job)

    def _watch(self, key: str) -> Callable[[], None] | None:
        """Return a watcher for a key of the store; None if one is set already."""
        with self._changed:
            if key in self._watched:
                return None
            self._watched.add(key)
        return lambda: self._mark_stale(key)

    def _publish(self, store: Store, info: WorkerInfo) -> None:
        node = store.get(self._path)
        if node is not None and node.owner != store.session_id:
            # Left by an expired session of this worker; the servers may remove it too late.
            with suppress(MissingError):
                store.delete(self._path)
            node = None
        if node is None:
            store.create(self._path, encode(info), ephemeral=True)
        else:
            store.set(self._path, encode(info))
        with self._changed:
            self._published, self._published_at = info, time.monotonic()
            self._changed.notify_all()


def _read_worker(job: str, name: str, data: bytes) -> WorkerInfo:
    """Decode the state of another worker; if that fails, return what its name shows.

    >>> _read_worker("count", "3-1", b"{}").phase
    'unknown'
    """
    try:
        return decode(WorkerInfo, data)
    except DocumentError:
        revision, _, attempt = name.partition("-")
        return WorkerInfo(job, int(revision), int(attempt), "an unknown node", 0, "unknown", 0.0)
