"""A worker's link to the store, in a thread of its own, so that an unreachable store does not delay the job.

The thread keeps the worker's ephemeral node as the worker wants it, and what the store says of the job's
assignment and its other workers. While the store is away, what it said last stands.
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
"""How often, at the most, progress alone is told: the node's report has it sooner, while there is one."""
_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 1.0


class StoreLink:
    """Tells the store of a worker, and the worker of the store."""

    def __init__(self, connect: Callable[[], Store], assignment: Assignment, info: WorkerInfo) -> None:
        self._connect = connect
        self._job = info.job
        self._name = f"{info.revision}-{info.attempt}"
        self._path = store_paths.worker(info.job, info.revision, info.attempt)
        self._wanted = info
        self._told: WorkerInfo | None = None
        self._told_at = 0.0
        self._result: Result | None = None
        self._armed: set[str] = set()
        self._stale = True
        self._closing = False
        self._trouble = ""
        self._keeps = assignment.settings.data_location == "node"
        self._assignment = assignment
        self._kept: BackupStatus | None = None
        self._changed = threading.Condition()
        self.view = WorkerView(assignment, known=False)
        """What the store said when it last answered."""
        self.location: BackupLocation | None = None
        """For a job whose data is with its node: who keeps a copy."""
        self.outdated = False
        """Whether another worker has said where the data is, and that counts."""
        self.kept: BackupStatus | None = None
        """What was known of its data before this worker said anything."""
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def tell(self, info: WorkerInfo) -> None:
        """Have the store know how the worker is doing, in time."""
        with self._changed:
            self._wanted = info
            self._changed.notify_all()

    def wait_worker_info(self, timeout: float) -> bool:
        """Wait until the store knows what it was told last, and whether it came to that."""
        with self._changed:
            return self._changed.wait_for(lambda: self._told == self._wanted, timeout)

    def set_backup_status(self, kept: BackupStatus) -> None:
        """Have the store know where the job's data is."""
        with self._changed:
            self._kept = kept
            self._changed.notify_all()

    def wait_backup_status(self, timeout: float) -> bool:
        """Wait until the store knows that, and whether it came to it and is what counts."""
        with self._changed:
            return self._changed.wait_for(lambda: self._kept is None, timeout) and not self.outdated

    def end(self, result: Result, timeout: float) -> bool:
        """Write how the job has ended, and say whether the store has it."""
        with self._changed:
            self._result = result
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._result is None, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Leave the store; the worker's node goes at once."""
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
                self._catch_up(store)
            except PenstockError as error:
                self._note(str(error))
                self._wake(None)
                self._doze(_RETRY_SECONDS)
                continue
            self._note("")
            with self._changed:
                self._changed.wait_for(self._has_work, _LOOK_SECONDS)
        if store is not None:
            with suppress(StoreError):
                store.close()

    def _has_work(self) -> bool:
        told = self._result is None and self._kept is None
        return self._closing or self._stale or not told or self._has_news()

    def _has_news(self) -> bool:
        due = time.monotonic() - self._told_at >= _PROGRESS_SECONDS
        return self._told != self._wanted and (due or not same_but_progress(self._told, self._wanted))

    def _note(self, trouble: str) -> None:
        """Log that the store is away, and that it is back."""
        if trouble and not self._trouble:
            _log.warning("store unreachable", reason=trouble)
        elif self._trouble and not trouble:
            _log.info("store reachable again")
        self._trouble = trouble

    def _doze(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _session_changed(self, session: Session) -> None:
        if session is not Session.CLOSED:
            self._wake(None)

    def _wake(self, key: str | None) -> None:
        """Look at the store again: something in it has changed, or the session has."""
        with self._changed:
            if key is None:
                self._told = None
                self._armed.clear()
            else:
                self._armed.discard(key)
            self._stale = True
            self._changed.notify_all()

    def _catch_up(self, store: Store) -> None:
        with self._changed:
            stale, self._stale = self._stale, False
            wanted, result, news = self._wanted, self._result, self._has_news()
            kept = self._kept
        if stale:
            if self._keeps:
                self._look_at_data(store)
            self.view = self._look(store)
        # A worker whose job was ended meanwhile does not come back.
        if news and (self._told is not None or self.view.assignment is not None):
            self._tell(store, wanted)
        if kept is not None:
            if not write_backup_status(store, kept, self._is_elsewhere):
                self.outdated = True
                _log.warning("not said where the data is", reason="another worker has")
            with self._changed:
                self._kept = None if self._kept is kept else self._kept
                self._changed.notify_all()
        if result is not None:
            put_result(store, result)
            with self._changed:
                self._result = None
                self._changed.notify_all()

    def _look(self, store: Store) -> WorkerView:
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
        """Return the assignment, or the last one that could be read: the job was not ended by another."""
        try:
            return decode(Assignment, data)
        except DocumentError as error:
            _log.error("assignment cannot be read: the worker runs on as it is", reason=str(error))
            return self.view.assignment or self._assignment

    def _is_elsewhere(self, known: BackupStatus) -> bool:
        """Whether somebody has worked on the data elsewhere since this worker looked."""
        node, seen = self._wanted.node, self.kept.number if self.kept is not None else 0
        return is_elsewhere(self._assignment, node, known) or (
            known.origin != node and not is_forgotten(self._assignment, known) and known.number > seen
        )

    def _look_at_data(self, store: Store) -> None:
        path = f"{store_paths.LOCATIONS}/{self._job}"
        node = store.get(path, self._watch(path))
        found: BackupLocation | None = None
        with suppress(DocumentError):
            found = decode(BackupLocation, node.data) if node is not None else None
        self.location = found
        if not self.view.known:
            self.kept = read_backup_status(store, self._job)

    def _watch(self, key: str) -> Callable[[], None] | None:
        """Return what is to be called when a node changes, unless that has been asked for already."""
        with self._changed:
            if key in self._armed:
                return None
            self._armed.add(key)
        return lambda: self._wake(key)

    def _tell(self, store: Store, info: WorkerInfo) -> None:
        node = store.get(self._path)
        if node is not None and node.owner != store.session_id:
            # Of a session of this very worker that has ended: the servers will remove it, perhaps too late.
            with suppress(MissingError):
                store.delete(self._path)
            node = None
        if node is None:
            store.create(self._path, encode(info), ephemeral=True)
        else:
            store.set(self._path, encode(info))
        with self._changed:
            self._told, self._told_at = info, time.monotonic()
            self._changed.notify_all()


def _read_worker(job: str, name: str, data: bytes) -> WorkerInfo:
    """Return what another worker says of itself; of one that cannot be read, what its name tells.

    >>> _read_worker("count", "3-1", b"{}").phase
    'unknown'
    """
    try:
        return decode(WorkerInfo, data)
    except DocumentError:
        revision, _, attempt = name.partition("-")
        return WorkerInfo(job, int(revision), int(attempt), "an unknown node", 0, "unknown", 0.0)
