"""The data of a job whose node was lost: brought to the node that runs it now, while Spark starts there."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from penstock.cluster.documents import Kept, Restore
from penstock.daemons.instance import Instance
from penstock.logs import get_logger
from penstock.snapshots.client import SnapshotClient
from penstock.snapshots.errors import TransferError, TransferStoppedError
from penstock.snapshots.restoring import Restored, needs_restore, restore
from penstock.snapshots.store import SnapshotStore

_FIRST_RETRY = 0.5
_LONGEST_RETRY = 10.0

_log = get_logger(__name__)


def wanted_restore(instance: Instance, kept: Kept | None) -> Restore | None:
    """Return what a worker has to restore before it runs its job; None if the data is where it shall be.

    That is what the assignment says, or a copy of what this node itself has lost: its disk was replaced.
    """
    assignment = instance.assignment
    if assignment.keep != "node" or assignment.restore is not None:
        return assignment.restore
    if kept is None or assignment.fresh or kept.origin != instance.node or not kept.store:
        return None
    if (Path(instance.storage) / "cluster-jobs" / instance.job).exists():
        return None
    return Restore(kept.store, kept.store_url, kept.revision)


class Restoration:
    """Restores the home of a job in a thread, unless that has been done.

    A store that does not answer is asked again until it does, or until nobody wants it any more: the copy is
    the only one there is.
    """

    def __init__(self, instance: Instance, wanted: Restore, token: str) -> None:
        self._instance = instance
        self._wanted = wanted
        self._token = token
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
            if needs_restore(self._home, self._wanted.revision):
                self._until_done()
        except TransferStoppedError:
            _log.info("restoring stopped")
        except Exception as error:
            self._error = error

    def _until_done(self) -> None:
        pause = _FIRST_RETRY
        while True:
            began = time.monotonic()
            try:
                restored = self._restore()
            except TransferError as error:
                if not error.again:
                    raise
                _log.warning("not restored yet", store=self._wanted.store, reason=str(error), again_in=pause)
                if self._stop.wait(pause):
                    raise TransferStoppedError("nobody wants the job's data any more") from error
                pause = min(_LONGEST_RETRY, 2 * pause)
                continue
            for reason in restored.skipped:
                _log.warning("snapshot not usable", store=self._wanted.store, reason=reason)
            _log.info(
                "restored",
                store=self._wanted.store,
                number=restored.number,
                batch=restored.batch,
                moved=restored.bytes_moved,
                seconds=round(time.monotonic() - began, 3),
            )
            return

    def _restore(self) -> Restored:
        instance, wanted = self._instance, self._wanted
        if wanted.store == instance.node:
            local = SnapshotStore(Path(instance.snapshots))
            return restore(self._home, instance.job, local=local, revision=wanted.revision, stop=self._stop)
        with SnapshotClient(wanted.url, self._token) as client:
            return restore(self._home, instance.job, client=client, revision=wanted.revision, stop=self._stop)
