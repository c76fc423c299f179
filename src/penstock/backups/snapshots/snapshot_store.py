"""The snapshots that a supervisor keeps for other nodes.

Each job has a folder with ``objects``, ``parts`` (unfinished uploads) and ``manifests``. Objects are named by
their digests, so that objects shared by several snapshots are sent and stored once, and no name given by a
client becomes a path. The manifest is written last and commits the snapshot.
"""

from __future__ import annotations

import io
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from penstock.backups.snapshots.manifest_store import ManifestStore, StoredManifest
from penstock.backups.snapshots.object_store import RESERVE, FileStamp, Objects, ObjectUpload
from penstock.backups.snapshots.snapshot_errors import (
    ManifestError,
    SnapshotFullError,
    SnapshotIncompleteError,
    SnapshotNameError,
    SnapshotStaleError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.transfer_format import frames
from penstock.setting_values import name_fault

UNREFERENCED_SECONDS = 3600.0
"""How long an object is kept whose snapshot was never committed."""
MOST_JOBS = 10_000
_REMOVED = ".leaving-"


@dataclass(frozen=True)
class Listed:
    """The snapshots of a job in a store."""

    manifests: tuple[Manifest, ...]
    """Newest first. Their objects exist unless the disk has lost some."""
    damaged: tuple[str, ...] = ()
    """The reason for each manifest that cannot be used."""


class _Job:
    """The objects and manifests of one job."""

    def __init__(self, folder: Path, reserve: int) -> None:
        self.lock = threading.Lock()
        self.objects = Objects(folder, reserve=reserve)
        self.manifests = ManifestStore(folder / "manifests")
        self.swept = float("-inf")


class SnapshotStore:
    """The snapshots in a folder. One process may write there, from any thread; others may read.

    >>> import hashlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = SnapshotStore(Path(folder.name))
    >>> name = hashlib.sha256(b"entry").hexdigest()
    >>> manifest = Manifest("count", 0, 1, 0, 41, 12.5, (SnapshotFile("ledger/41", name, 5),))
    >>> store.missing("count", manifest.pieces) == {name: 0}
    True
    >>> with store.receive("count", name, 0, 5) as upload:
    ...     upload.write(b"entry")
    ...     upload.finish()
    True
    >>> store.commit("count", manifest)
    1
    >>> [each.batch for each in store.manifests("count").manifests]
    [41]
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 3,
        clock: Callable[[], float] = time.time,
        reserve: int = RESERVE,
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._clock = clock
        self._reserve = reserve
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}

    def missing(self, job: str, pieces: Iterable[SnapshotFile]) -> dict[str, int]:
        """Return the objects to send, each with the number of bytes already received."""
        objects = self._read_only(job).objects
        sizes = {piece.sha256: piece.size for piece in pieces}
        lacking = [name for name in sorted(sizes) if (objects.stamp(name) or (None,))[0] != sizes[name]]
        return {name: min(objects.received(name), sizes[name]) for name in lacking}

    def receive(self, job: str, sha256: str, offset: int, size: int) -> ObjectUpload:
        """Begin to receive an object of ``size`` bytes from an offset on. See Objects.begin."""
        return self._job(job).objects.begin(sha256, offset, size)

    def unpack(self, job: str, pack: bytes) -> int:
        """Store the small objects of a pack, see ``transfer_format``; return how many.

        If the pack is truncated, the complete objects before that are stored. Raises SnapshotDamagedError.
        """
        objects = self._job(job).objects
        objects.check_free_space(len(pack))
        count = 0
        for each in frames(io.BytesIO(pack)):
            objects.put(each.sha256, each.data)
            count += 1
        return count

    def commit(self, job: str, manifest: Manifest) -> int:
        """Commit a snapshot whose objects have been received; return its number.

        The number is larger than all earlier ones. Sending the newest snapshot again returns its number.
        Raises SnapshotIncompleteError when objects are missing or damaged, SnapshotStaleError when a later
        worker of the job has sent a snapshot.
        """
        own = self._job(job)
        if manifest.job != job:
            raise SnapshotNameError(f"this is a snapshot of {manifest.job!r}, not of {job!r}")
        with own.lock:
            newest = own.manifests.newest()
            _check_worker(job, newest, manifest.revision, manifest.attempt)
            if newest is not None and replace(manifest, number=newest.manifest.number) == newest.manifest:
                return newest.manifest.number
            known = dict(newest.stamps) if newest is not None else {}
            stamps = _verified(job, manifest, own.objects, known)
            own.objects.sync(sorted(name for name in stamps if known.get(name) != stamps[name]))
            number = max(manifest.number, 1, *(number + 1 for number in own.manifests.numbers()[:1]))
            own.manifests.write(replace(manifest, number=number), stamps)
            self._remove_old(own)
        return number

    def manifests(self, job: str, *, before: int | None = None, limit: int | None = None) -> Listed:
        """Return a job's snapshots, newest first: at most ``limit``, with numbers below ``before``."""
        manifests = self._read_only(job).manifests
        found: list[Manifest] = []
        damaged: list[str] = []
        for number in manifests.numbers():
            if before is not None and number >= before:
                continue
            if limit is not None and len(found) >= limit:
                break
            try:
                found.append(manifests.read(number).manifest)
            except ManifestError as error:
                damaged.append(str(error))
        return Listed(tuple(found), tuple(damaged))

    def open(self, job: str, sha256: str) -> BinaryIO:
        """Open an object; the reader must check its digest. Raises SnapshotMissingError."""
        return self._read_only(job).objects.open(sha256)

    def path(self, job: str, sha256: str) -> Path:
        """Return the path of an object, whether it exists or not."""
        return self._read_only(job).objects.path(sha256)

    def jobs(self) -> list[str]:
        """Return the names of all jobs with stored data."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if name_fault(path.name) is None)

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Remove all snapshots of a job for a worker. Raises SnapshotStaleError like commit."""
        own = self._job(job)
        with own.lock:
            _check_worker(job, own.manifests.newest(), revision, attempt)
            away = self._folder / f"{_REMOVED}{secrets.token_hex(8)}"
            try:
                (self._folder / job).rename(away)
            except FileNotFoundError:
                return
            finally:
                with self._lock:
                    self._jobs.pop(job, None)
        shutil.rmtree(away, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a crash left. The writing process calls this at its start."""
        if self._folder.is_dir():
            for left in self._folder.glob(f"{_REMOVED}*"):
                shutil.rmtree(left, ignore_errors=True)
        for job in self.jobs():
            own = self._job(job)
            with own.lock:
                self._remove_old(own)

    def _remove_old(self, own: _Job) -> None:
        """Remove the oldest snapshots, and objects that no snapshot references any more."""
        kept, removed = set[str](), set[str]()
        complete, damaged = 0, False
        for number in own.manifests.numbers():
            try:
                names = own.manifests.object_names(number)
            except ManifestError:
                names = None
            if complete == self._keep:
                removed |= names or set()
                own.manifests.remove(number)
            elif names is None:
                damaged = True
            else:
                kept |= names
                complete += 1
        now = self._clock()
        # A damaged manifest may become readable again, and its objects are unknown: keep all objects.
        if now - own.swept >= UNREFERENCED_SECONDS and not damaged:
            own.swept = now
            removed.update(own.objects.older_than(now - UNREFERENCED_SECONDS))
        own.objects.remove(sorted(removed - kept))
        own.objects.forget_checked(kept)

    def _job(self, job: str) -> _Job:
        """Return a job's data for a change; cached."""
        with self._lock:
            own = self._jobs.get(job)
            if own is None:
                if len(self._jobs) >= MOST_JOBS:
                    raise SnapshotFullError(
                        f"this node already keeps snapshots of {MOST_JOBS} jobs, the maximum"
                    )
                own = self._jobs[job] = self._read_only(job)
            return own

    def _read_only(self, job: str) -> _Job:
        """Return a job's data for a read; not cached."""
        if name_fault(job) is not None:
            raise SnapshotNameError("not a valid job name")
        return _Job(self._folder / job, self._reserve)


def _check_worker(job: str, newest: StoredManifest | None, revision: int, attempt: int) -> None:
    """Raise SnapshotStaleError for a worker whose successor has already sent a snapshot."""
    if newest is None:
        return
    last = newest.manifest
    if (revision, attempt) < (last.revision, last.attempt):
        raise SnapshotStaleError(
            f"job {job!r}: revision {revision}, attempt {attempt} has been succeeded by {last.revision},"
            f" {last.attempt}"
        )


def _verified(
    job: str, manifest: Manifest, objects: Objects, known: dict[str, FileStamp]
) -> dict[str, FileStamp]:
    """Return the stamps of a snapshot's objects. Raises SnapshotIncompleteError unless all are intact."""
    stamps: dict[str, FileStamp] = {}
    lacking: list[str] = []
    for name, size in sorted({(piece.sha256, piece.size) for piece in manifest.pieces}):
        stamp = objects.stamp(name)
        trusted = stamp is not None and stamp in (objects.checked.get(name), known.get(name))
        if stamp is None or stamp[0] != size or not (trusted or objects.is_intact(name)):
            lacking.append(name)
        else:
            stamps[name] = stamp
    if lacking:
        raise SnapshotIncompleteError(job, lacking)
    return stamps
