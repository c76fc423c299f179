"""The data of a job whose node was lost: brought to the node that runs it now, while Spark starts there."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from penstock.cluster.documents import Assignment, BackupStatus, RestoreSource
from penstock.cluster.homes import is_forgotten
from penstock.daemons.following import TAKE_OVER_AFTER
from penstock.daemons.instance import WorkerConfig
from penstock.daemons.worker_link import StoreLink
from penstock.logs import get_logger
from penstock.schedule.location.model import UNKNOWN_BANDWIDTH
from penstock.snapshots.client import SnapshotClient
from penstock.snapshots.errors import TransferError, TransferStoppedError
from penstock.snapshots.restoring import Restored, needs_restore, restore
from penstock.snapshots.store import SnapshotStore

_LOOK = 0.05
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 10.0

UNRESERVED_RATE = 0.1 * UNKNOWN_BANDWIDTH
"""Bytes a second of a transfer for which nothing was set aside.

The plan may have been to run the job where its copy is, and the job has landed elsewhere; or a node fetches
back what its own disk has lost. The location controller has promised links to other transfers, and counts on
a tenth of a link for copies however busy it is (``schedule/locating.py``). A worker does not know how fast
the links of both nodes are, so it takes that share of what the controller assumes where nobody has said.
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
                raise TransferStoppedError("nobody wants the job's data any more")

    def _until_done(self, wanted: RestoreSource) -> None:
        pause = _FIRST_RETRY
        while True:
            began = time.monotonic()
            try:
                restored = self._restore(wanted)
            except TransferError as error:
                if not error.again:
                    raise
                _log.warning("not restored yet", store=wanted.store, reason=str(error), again_in=pause)
                if self._stop.wait(pause):
                    raise TransferStoppedError("nobody wants the job's data any more") from error
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
