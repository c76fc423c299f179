"""The snapshots that a supervisor keeps for other nodes.

Of each job it has a folder with ``objects``, ``parts`` (objects that are still coming) and ``manifests``.
What is sent is named by its digest, so that what two snapshots share is sent and kept once, and no name of a
client becomes a path. A snapshot counts when its manifest is there, which is written last.
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

LINGER = 3600.0
"""Seconds that something stays which was sent for a snapshot that never came."""
MOST_JOBS = 10_000
_BLOCK = 1 << 20
_LEAVING = ".leaving-"


@dataclass(frozen=True)
class Listed:
    """The snapshots of a job that a store has."""

    manifests: tuple[Manifest, ...]
    """Newest first. Their objects are there unless the disk has lost some."""
    damaged: tuple[str, ...] = ()
    """Of each manifest that cannot be used, why not."""


class _Job:
    """What there is of one job."""

    def __init__(self, folder: Path, reserve: int) -> None:
        self.lock = threading.Lock()
        self.objects = Objects(folder, reserve=reserve)
        self.shelf = ManifestStore(folder / "manifests")
        self.swept = float("-inf")


class SnapshotStore:
    """The snapshots in a folder. One process writes there, from any thread; others may read.

    >>> import hashlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = SnapshotStore(Path(folder.name))
    >>> name = hashlib.sha256(b"entry").hexdigest()
    >>> manifest = Manifest("count", 0, 1, 0, 41, 12.5, (SnapshotFile("ledger/41", name, 5),))
    >>> store.missing("count", manifest.pieces) == {name: 0}
    True
    >>> store.append("count", name, 0, io.BytesIO(b"entry"), 5), store.commit("count", manifest)
    (True, 1)
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
        """Return which objects are to be sent, and of each how many bytes are here already."""
        objects = self._seen(job).objects
        sizes = {piece.sha256: piece.size for piece in pieces}
        lacking = [name for name in sorted(sizes) if (objects.look(name) or (None,))[0] != sizes[name]]
        return {name: min(objects.held(name), sizes[name]) for name in lacking}

    def receive(self, job: str, sha256: str, offset: int, size: int) -> ObjectUpload:
        """Let an object of ``size`` bytes be written from an offset on; to be closed. See Objects.begin."""
        return self._job(job).objects.begin(sha256, offset, size)

    def append(self, job: str, sha256: str, offset: int, data: BinaryIO, size: int) -> bool:
        """Add to an object of ``size`` bytes what follows ``offset``; return whether it is whole now."""
        with self.receive(job, sha256, offset, size) as receiving:
            while block := data.read(_BLOCK):
                receiving.write(block)
            return receiving.finish()

    def unpack(self, job: str, pack: bytes) -> int:
        """Keep several small objects, see framing; return how many.

        If the pack is cut off, those before the cut are kept. Raises SnapshotDamagedError.
        """
        objects = self._job(job).objects
        objects.check_room(len(pack))
        count = 0
        for each in frames(io.BytesIO(pack)):
            objects.put(each.sha256, each.data)
            count += 1
        return count

    def commit(self, job: str, manifest: Manifest) -> int:
        """Make a snapshot count, all of whose objects were sent; return its number.

        The number is larger than all before. The same snapshot sent twice counts once. Raises
        SnapshotIncompleteError when objects are missing or damaged, SnapshotStaleError when a later
        worker of the job has sent one.
        """
        own = self._job(job)
        if manifest.job != job:
            raise SnapshotNameError(f"this is a snapshot of {manifest.job!r}, not of {job!r}")
        with own.lock:
            newest = own.shelf.newest()
            _check_worker(job, newest, manifest.revision, manifest.attempt)
            if newest is not None and replace(manifest, number=newest.manifest.number) == newest.manifest:
                return newest.manifest.number
            known = dict(newest.prints) if newest is not None else {}
            prints = _verified(job, manifest, own.objects, known)
            own.objects.sync(sorted(name for name in prints if known.get(name) != prints[name]))
            number = max(manifest.number, 1, *(number + 1 for number in own.shelf.numbers()[:1]))
            own.shelf.write(replace(manifest, number=number), prints)
            self._drop(own)
        return number

    def manifests(self, job: str, *, before: int | None = None, limit: int | None = None) -> Listed:
        """Return what there is of a job, newest first: those ``before`` a number, ``limit`` at most."""
        shelf = self._seen(job).shelf
        found: list[Manifest] = []
        damaged: list[str] = []
        for number in shelf.numbers():
            if before is not None and number >= before:
                continue
            if limit is not None and len(found) >= limit:
                break
            try:
                found.append(shelf.read(number).manifest)
            except ManifestError as error:
                damaged.append(str(error))
        return Listed(tuple(found), tuple(damaged))

    def open(self, job: str, sha256: str) -> BinaryIO:
        """Open an object; the reader must check its digest. Raises SnapshotMissingError."""
        return self._seen(job).objects.open(sha256)

    def path(self, job: str, sha256: str) -> Path:
        """Where an object is, if it is here."""
        return self._seen(job).objects.path(sha256)

    def jobs(self) -> list[str]:
        """The names of all jobs that something is kept of."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if name_fault(path.name) is None)

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Remove all snapshots of a job, at a worker's wish. Raises SnapshotStaleError as commit does."""
        own = self._job(job)
        with own.lock:
            _check_worker(job, own.shelf.newest(), revision, attempt)
            away = self._folder / f"{_LEAVING}{secrets.token_hex(8)}"
            try:
                (self._folder / job).rename(away)
            except FileNotFoundError:
                return
            finally:
                with self._lock:
                    self._jobs.pop(job, None)
        shutil.rmtree(away, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a crash left. For the process that writes, when it begins."""
        if self._folder.is_dir():
            for left in self._folder.glob(f"{_LEAVING}*"):
                shutil.rmtree(left, ignore_errors=True)
        for job in self.jobs():
            own = self._job(job)
            with own.lock:
                self._drop(own)

    def _drop(self, own: _Job) -> None:
        """Remove the oldest snapshots, and what no snapshot consists of any more."""
        kept, gone = set[str](), set[str]()
        whole, damaged = 0, False
        for number in own.shelf.numbers():
            try:
                names = own.shelf.names(number)
            except ManifestError:
                names = None
            if whole == self._keep:
                gone |= names or set()
                own.shelf.remove(number)
            elif names is None:
                damaged = True
            else:
                kept |= names
                whole += 1
        now = self._clock()
        # A manifest that cannot be read may be readable tomorrow: what it consists of is not known.
        if now - own.swept >= LINGER and not damaged:
            own.swept = now
            gone.update(own.objects.strays(now - LINGER))
        own.objects.remove(sorted(gone - kept))
        own.objects.settled(kept)

    def _job(self, job: str) -> _Job:
        """Return what is known of a job, for a change."""
        with self._lock:
            own = self._jobs.get(job)
            if own is None:
                if len(self._jobs) >= MOST_JOBS:
                    raise SnapshotFullError(
                        f"this node already keeps snapshots of {MOST_JOBS} jobs, the maximum"
                    )
                own = self._jobs[job] = self._seen(job)
            return own

    def _seen(self, job: str) -> _Job:
        """Return what is known of a job, for a read: nothing is kept in memory."""
        if name_fault(job) is not None:
            raise SnapshotNameError("this is not the name of a job")
        return _Job(self._folder / job, self._reserve)


def _check_worker(job: str, newest: StoredManifest | None, revision: int, attempt: int) -> None:
    """Refuse a worker whose successor has already sent a snapshot."""
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
    """Return what a snapshot's objects look like, all of which are whole. Raises SnapshotIncompleteError."""
    prints: dict[str, FileStamp] = {}
    lacking: list[str] = []
    for name, size in sorted({(piece.sha256, piece.size) for piece in manifest.pieces}):
        seen = objects.look(name)
        trusted = seen is not None and seen in (objects.checked.get(name), known.get(name))
        if seen is None or seen[0] != size or not (trusted or objects.is_right(name)):
            lacking.append(name)
        else:
            prints[name] = seen
    if lacking:
        raise SnapshotIncompleteError(job, lacking)
    return prints
