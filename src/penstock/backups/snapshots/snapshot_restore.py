"""Makes a job's home from the newest complete snapshot and moves it into place.

It can be interrupted anywhere and resumed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from penstock.backups.snapshots.durable_files import disk_full_errors, make_private, sync_all, write_durably
from penstock.backups.snapshots.snapshot_client import SnapshotClient, go_on
from penstock.backups.snapshots.snapshot_errors import (
    NoWholeSnapshotError,
    SnapshotDamagedError,
    SnapshotMissingError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.errors import LogError
from penstock.local_files import make_folder, sync
from penstock.log import log_description


def make_log_folders(home: Path) -> None:
    """Make the folders that each log of a home must have."""
    logs = home / "logs"
    for name in sorted(os.listdir(logs)) if logs.is_dir() else ():
        try:
            numbers = range(log_description.read(logs / name).partitions)
        except LogError:
            continue  # It is none, or damaged: who opens it will say so.
        for folder in (
            log_description.STAGING,
            log_description.READERS,
            *map(log_description.partition_folder, numbers),
        ):
            make_folder(logs / name / folder)


_SEGMENT = re.compile(r"logs/[^/]+/p\d{5}/\d{20}\.seg")
_STAGED = re.compile(r"logs/[^/]+/staging/[^/]+")
_CHECKPOINT = re.compile(r"cluster-jobs/[^/]+/[^/]+/(ledger|state|feedback)/.+")
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
_BLOCK = 1 << 20

Find = Callable[[SnapshotFile], Path]
"""Says where the object of a piece is."""


def is_immutable(path: str) -> bool:
    """Whether what a job has at a path of its home is replaced or removed, but never written to again.

    >>> is_immutable("logs/in/p00000/00000000000000000120.seg"), is_immutable("logs/in/p00000/.lock")
    (True, False)
    >>> is_immutable("cluster-jobs/count/000002-0001/ledger/41"), is_immutable("logs/in/staging/stage-0a.seg")
    (True, False)
    """
    return _SEGMENT.fullmatch(path) is not None or _CHECKPOINT.fullmatch(path) is not None


def _is_staged(path: str) -> bool:
    return _STAGED.fullmatch(path) is not None


def build(folder: Path, manifest: Manifest, find: Find) -> None:
    """Make a folder with what a snapshot consists of, and bring it to the disk.

    Raises SnapshotMissingError or SnapshotDamagedError, which name the file, and leave the folder half made.
    """
    published: dict[str, Path] = {}
    made, folders = [], {folder}
    with disk_full_errors():
        folder.mkdir(mode=0o700)
        # Segments come before what is staged: a staged one that is published too stays one file with it.
        for piece in sorted(manifest.pieces, key=lambda piece: (_is_staged(piece.path), piece.path)):
            target = folder / piece.path
            made.append(target)
            folders.update(_make_folders(folder, target.parent))
            source = published.get(piece.sha256) if _is_staged(piece.path) else None
            if source is not None:
                os.link(source, target)
                continue
            _restore(find(piece), target, piece, link=is_immutable(piece.path))
            if _SEGMENT.fullmatch(piece.path):
                published[piece.sha256] = target
        for name in manifest.folders:
            folders.update(_make_folders(folder, folder / name))
        # All at the end: the disk then writes most of it at once.
        sync_all(made)
        sync_all(sorted(folders))


def _make_folders(top: Path, folder: Path) -> list[Path]:
    """Make a folder below ``top`` and all between, for their owner alone; return them."""
    between = [folder, *folder.parents]
    make_private(folder)
    return between[: between.index(top)]


def _restore(source: Path, target: Path, piece: SnapshotFile, *, link: bool) -> None:
    linked = link and _link(source, target, piece)
    descriptor = -1
    if not linked:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    digest = hashlib.sha256()
    try:
        with source.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                if not linked:
                    _write(descriptor, block)
    except FileNotFoundError:
        raise SnapshotMissingError(f"the object {piece.sha256} ({piece.path}) is missing") from None
    finally:
        if not linked:
            os.close(descriptor)
    if digest.hexdigest() != piece.sha256:
        raise SnapshotDamagedError(f"the object {piece.sha256} ({piece.path}) is damaged")


def _link(source: Path, target: Path, piece: SnapshotFile) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise SnapshotMissingError(f"the object {piece.sha256} ({piece.path}) is missing") from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]


MARKER = "restored.json"
"""Beside a home: what it was restored from."""
_BEFORE = ".before-"


@dataclass(frozen=True)
class Restored:
    """What a job's home was made from."""

    revision: int
    """The revision of the job that left it."""
    number: int
    """Of the snapshot."""
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    bytes_moved: int
    """Over the network, by the try that made it."""
    skipped: tuple[str, ...] = ()
    """Of each newer snapshot that could not be used, why not."""


def needs_restore(home: Path, revision: int) -> bool:
    """Whether what ``revision`` of a job left behind has still to be restored as ``home``."""
    done = restored(home)
    return done is None or done.revision < revision or not home.is_dir()


def restored(home: Path) -> Restored | None:
    """Return what a home was last restored from; None if it never was."""
    return _read(home.with_name(MARKER))


def not_restored(home: Path) -> None:
    """Have a home restored again that nobody has worked on since it was: there is a newer snapshot."""
    home.with_name(MARKER).unlink(missing_ok=True)


def restore(
    home: Path,
    job: str,
    *,
    local: SnapshotStore | None = None,
    client: SnapshotClient | None = None,
    revision: int,
    stop: Event | None = None,
) -> Restored:
    """Make ``home`` from the newest whole snapshot: of ``local`` if this node keeps it, else by ``client``.

    ``revision`` is the one that left the snapshot. Interrupted anywhere, it can be called again and goes on.
    Until it is done ``home`` is as it was; the one that was there is ``home.before-REVISION`` then. Raises
    NoWholeSnapshotError, which has changed nothing, NodeRequestError and TransferStoppedError.
    """
    place = home.with_name("restoring")
    ready, built = place / "ready.json", place / home.name
    with disk_full_errors():
        make_private(place)
    made = _read(ready)
    if made is None or made.revision != revision or not (built.is_dir() or home.is_dir()):
        ready.unlink(missing_ok=True)
        source = _Source(job, local, client, place / "objects", stop)
        made = _make(built, revision, source)
        _note(ready, made)
    _put_in_place(built, home, revision)
    _note(home.with_name(MARKER), made)
    _clear(home, place)
    return made


class _Source:
    """Where a job's snapshots come from."""

    def __init__(
        self,
        job: str,
        local: SnapshotStore | None,
        client: SnapshotClient | None,
        objects: Path,
        stop: Event | None,
    ) -> None:
        self.job = job
        self._local = local
        self._client = client
        self._objects = objects
        self._stop = stop
        self._before: int | None = None
        self.skipped: list[str] = []
        self.name = "this node" if local is not None or client is None else client.url

    @property
    def moved(self) -> int:
        """How many bytes were fetched so far."""
        return self._client.fetched if self._local is None and self._client is not None else 0

    def next(self) -> Manifest | None:
        """The newest snapshot that was not tried yet."""
        source = self._local if self._local is not None else self._client
        if source is None:
            return None
        listed = source.manifests(self.job, before=self._before, limit=1)
        self.skipped.extend(listed.damaged)
        for manifest in listed.manifests:
            self._before = manifest.number
            return manifest
        return None

    def build(self, folder: Path, manifest: Manifest) -> None:
        """Make the files of a snapshot. Raises SnapshotMissingError and SnapshotDamagedError."""
        go_on(self._stop)
        shutil.rmtree(folder, ignore_errors=True)
        local = self._local
        if local is not None:
            build(folder, manifest, lambda piece: local.path(self.job, piece.sha256))
        elif self._client is not None:
            self._client.fetch(self.job, manifest, self._objects, self._stop)
            build(folder, manifest, lambda piece: self._objects / piece.sha256)


def _make(built: Path, revision: int, source: _Source) -> Restored:
    before = source.moved
    while (manifest := source.next()) is not None:
        try:
            source.build(built, manifest)
        except (SnapshotMissingError, SnapshotDamagedError) as error:
            source.skipped.append(f"snapshot {manifest.number}: {error}")
            continue
        make_log_folders(built)
        moved = source.moved - before
        return Restored(revision, manifest.number, manifest.batch, moved, tuple(source.skipped))
    shutil.rmtree(built, ignore_errors=True)
    raise NoWholeSnapshotError(source.job, source.name, source.skipped)


def _put_in_place(built: Path, home: Path, revision: int) -> None:
    """Rename what was made, unless that was done before."""
    if not built.is_dir():
        return
    if home.is_dir():
        aside = home.with_name(f"{home.name}{_BEFORE}{revision}")
        shutil.rmtree(aside, ignore_errors=True)
        home.rename(aside)
    built.rename(home)
    sync(home.parent)


def _clear(home: Path, place: Path) -> None:
    """Remove what is of no more use: all but the last of the homes that were set aside."""
    prefix = f"{home.name}{_BEFORE}"
    names = [path.name.removeprefix(prefix) for path in home.parent.iterdir() if path.name.startswith(prefix)]
    for revision in sorted(int(name) for name in names if name.isdigit())[:-1]:
        shutil.rmtree(home.with_name(f"{prefix}{revision}"), ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)


def _note(path: Path, made: Restored) -> None:
    write_durably(path, json.dumps(asdict(made), sort_keys=True).encode())


def _read(path: Path) -> Restored | None:
    """Read a note; None when there is none, or none that can be understood."""
    try:
        content = json.loads(path.read_bytes())
        made = Restored(**{**content, "skipped": tuple(content["skipped"])})
        return made if type(made.revision) is int else None
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
