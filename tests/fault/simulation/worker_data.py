"""The data of a job that is with its node, as its simulated worker sees to it: restored, told of, copied.

What is decided is decided by the real code: what to restore, what to say first, whose word counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.backups.data_affinity import is_forgotten
from penstock.backups.worker.job_home import restore_source_for
from penstock.backups.worker.snapshot_uploader import initial_backup_status
from penstock.cluster.assignment_documents import Assignment, BackupStatus
from penstock.daemon.store_link import StoreLink
from penstock.errors import PenstockError
from simulation.storage import Claim, Copy, JobFolder, Storage
from simulation.world import World

EVERY = 2.0
TOLD_SECONDS = 5.0


class JobHome:
    """What a worker does about its job's data, without threads."""

    def __init__(
        self,
        world: World,
        storage: Storage[Any],
        link: StoreLink,
        assignment: Assignment,
        node: str,
        claim: Claim,
    ) -> None:
        self._world = world
        self._storage = storage
        self._link = link
        self._assignment = assignment
        self._job, self._node, self._claim = assignment.job, node, claim
        self._kept: BackupStatus | None = None
        self._leaving: set[str] = set()
        self._next = 0.0
        self._told_by = 0.0

    def is_restored(self) -> bool:
        """Whether the folder is as it must be; restore it if it is not."""
        if not self._link.view.known:
            return False
        has_data = self._storage.of(self._job, self._node).holder > (0, 0)
        wanted = restore_source_for(self._assignment, self._node, self._link.kept, has_data=has_data)
        if wanted is None:
            return True
        try:
            self._storage.restore(self._job, self._node, wanted.store, wanted.revision)
        except PenstockError as error:
            self._world.tell(self._job, f"is not restored on {self._node}: {error}")
            return False
        return True

    def introduce(self, *, emptied: bool) -> None:
        """Say that the data is here, before anything is done with it."""
        known = self._link.kept
        if emptied and (known is None or is_forgotten(self._assignment, known)):
            self._storage.promised[self._job] = 0
        self._kept = initial_backup_status(self._assignment, self._node, self._claim[1], known)
        if known is not None and known.store and not self._kept.store and self._is_ours(known):
            self._leaving.add(known.store)
            if is_forgotten(self._assignment, known):
                self._storage.forget(self._job, known.store, self._claim)
        self._link.set_backup_status(self._kept)
        self._told_by = self._world.now + TOLD_SECONDS

    def wait_origin_written(self) -> bool:
        """Whether the job may begin: everybody can know where its data is, or it was here before."""
        known = self._link.kept
        here = known is not None and known.origin == self._node
        return self._link.wait_backup_status(0.0) or (here and self._world.now >= self._told_by)

    def discard_restore(self) -> None:
        """Have the next attempt restore again."""
        self._storage.restored.pop((self._job, self._node), None)

    @property
    def outdated(self) -> bool:
        """Whether another node has newer data."""
        return self._link.outdated

    def copy(self, folder: JobFolder) -> None:
        """Send a snapshot, if it is time."""
        location = self._link.location
        if self._kept is None or location is None or self._link.outdated or self._world.now < self._next:
            return
        self._next = self._world.now + EVERY
        copy = Copy(self._kept.number + 1, self._claim, folder.holder, tuple(folder.ledger))
        try:
            self._storage.keep(self._job, location.store, copy)
        except PenstockError as error:
            self._world.tell(self._job, f"has no copy: {error}")
            return
        if self._kept.store and self._kept.store != location.store:
            self._leaving.add(self._kept.store)
        self._kept = replace(
            self._kept,
            store=location.store,
            store_url=location.store_url,
            number=copy.number,
            batch=len(copy.ledger) - 1,
        )
        self._link.set_backup_status(self._kept)
        self._leaving.discard(location.store)

    def forget_others(self) -> None:
        """Have stores remove what they need no more, once everybody can know who has the copy."""
        if self._leaving and self._link.wait_backup_status(0.0):
            for store in sorted(self._leaving):
                self._storage.forget(self._job, store, self._claim)
            self._leaving.clear()

    def _is_ours(self, known: BackupStatus) -> bool:
        return (known.revision, known.attempt) <= self._claim
