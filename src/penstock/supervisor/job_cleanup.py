"""Removes the files of forgotten jobs from a node: process folders, snapshots, large bundles, data."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from penstock.backups.snapshots.snapshot_errors import SnapshotStaleError
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.blob_store import BlobStore
from penstock.cluster.job_documents import Tombstone
from penstock.coord import store_paths
from penstock.coord.coordination_store import Session, Store
from penstock.coord.mirrored_documents import Documents
from penstock.coord.store_mirror import StoreMirror
from penstock.engine.storage.job_folder import Claim
from penstock.process_logs.process_log import get_logger
from penstock.replicas.replica_id import ReplicaId

_log = get_logger(__name__)

CLEANUP_SECONDS = 60.0
"""Seconds between two passes."""
UNUSED_BLOB = 3600.0
"""Seconds that an unknown large bundle is kept: bundles arrive before the store names them."""
UNKNOWN_JOB_SECONDS = 7 * 86400.0
"""Seconds after which the folder of a dead process of an unknown job is removed."""
_AWAY = ".forgotten-"
_LAST_ATTEMPT = 1 << 30


class DeadInstances(Protocol):
    """The removal of the folders of dead processes."""

    def forget(self, revisions: Mapping[str, int]) -> None:
        """Remove the folders of dead processes of jobs, up to a revision of each."""
        ...

    def forget_unknown(self, jobs: set[str], before: float) -> None:
        """Remove the folders of processes that died before a time and whose job is none of these."""
        ...


class JobCleanup:
    """Removes files on one node; :meth:`step` removes everything that is due.

    The data of a job is removed only if its tombstone says so, and never because no document of the job is
    found.
    """

    def __init__(
        self,
        store: Store,
        node_folder: Path,
        storage: Path,
        *,
        instances: DeadInstances,
        blobs: BlobStore,
        snapshots: SnapshotStore,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._kept = node_folder / "kept"
        self._storage = storage
        self._instances = instances
        self._blobs = blobs
        self._snapshots = snapshots
        self._mirror = StoreMirror(store, (store_paths.TOMBSTONES,), wake)
        self._documents = Documents(self._mirror)

    def step(self, now: float) -> None:
        """Remove everything that is due. Raises StoreError."""
        if self._store.session is not Session.CONNECTED:
            return
        self._mirror.refresh()
        stones = self._documents.all(Tombstone, store_paths.TOMBSTONES)
        self._instances.forget({job: stone.revision for job, stone in stones.items()})
        for job in self._snapshots.jobs():
            stone = stones.get(job)
            if stone is not None:
                with suppress(SnapshotStaleError):  # A job of the same name has been submitted since.
                    self._snapshots.forget(job, revision=stone.revision, attempt=_LAST_ATTEMPT)
        for stone in stones.values():
            if stone.data:
                self._remove_data(stone)
        # The jobs are read after the folders were listed, so that no new job is missing.
        self._instances.forget_unknown(set(self._store.children(store_paths.JOBS)), now - UNKNOWN_JOB_SECONDS)
        self._remove_blobs(now)

    def _remove_data(self, stone: Tombstone) -> None:
        """Remove a job's data, on this node and in the storage, unless a later job of its name uses it."""
        home = self._kept / stone.job
        if _held(home / "home" / "cluster-jobs" / stone.job) <= stone.revision:
            _remove(home)
        bases = self._storage / "cluster-jobs"
        for base in _listed(bases):
            replica = ReplicaId.find(base.name)
            if replica is not None and replica.job == stone.job and _held(base) <= stone.revision:
                _remove(base)
        for lineage in _listed(self._storage / "agreements" / stone.job):
            # Replicas of a job that was submitted since use the last revision as lineage, or a later one.
            if lineage.name.isdigit() and int(lineage.name) < max(stone.revision, 1):
                _remove(lineage)
        with suppress(OSError):  # Unless something is left there.
            (self._storage / "agreements" / stone.job).rmdir()
        for place in (self._kept, bases, self._storage / "agreements"):
            for left in place.glob(f"{_AWAY}*"):
                shutil.rmtree(left, ignore_errors=True)

    def _remove_blobs(self, now: float) -> None:
        """Remove large bundles that the cluster does not know and that are not being sent."""
        old = [name for name in self._blobs.names() if now - self._blobs.stored(name) >= UNUSED_BLOB]
        if old:
            known = set(self._store.children(store_paths.BUNDLES))
            for name in old:
                if name not in known:
                    self._blobs.remove(name)


def _held(base: Path) -> int:
    """Return the largest revision with a folder of a job; 0 if there is none."""
    claims = [claim for path in _listed(base) if (claim := Claim.of(path.name)) is not None]
    return max((claim.revision for claim in claims), default=0)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _remove(folder: Path) -> None:
    """Rename a folder and then remove it, so that an interruption leaves no partial folder."""
    away = folder.with_name(f"{_AWAY}{uuid4().hex}")
    try:
        folder.rename(away)
    except FileNotFoundError:
        return  # It is not there, or another supervisor was faster.
    _log.info("data of a forgotten job removed", folder=str(folder))
    shutil.rmtree(away, ignore_errors=True)
