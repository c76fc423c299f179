"""Builds a job's home from the newest complete snapshot and moves it into place.

The restore can be interrupted at any point and resumed.
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
from penstock.backups.snapshots.snapshot_client import SnapshotClient, check_not_stopped
from penstock.backups.snapshots.snapshot_errors import (
    NoCompleteSnapshotError,
    SnapshotDamagedError,
    SnapshotMissingError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.errors import LogError
from penstock.local_files import make_folder, sync
from penstock.log import log_description


def make_log_folders(home: Path) -> None:
    """Create the folders that each log of a home must have."""
    logs = home / "logs"
    for name in sorted(os.listdir(logs)) if logs.is_dir() else ():
        try:
            numbers = range(log_description.read(logs / name).partitions)
        except LogError:
            continue  # Not a log, or a damaged one: opening it will report that.
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
"""Returns the path of a file's object."""


def is_immutable(path: str) -> bool:
    """Return whether the file at a path of a job's home may be replaced or removed, but is never modified.

    >>> is_immutable("logs/in/p00000/00000000000000000120.seg"), is_immutable("logs/in/p00000/.lock")
    (True, False)
    >>> is_immutable("cluster-jobs/count/000002-0001/ledger/41"), is_immutable("logs/in/staging/stage-0a.seg")
    (True, False)
    """
    return _SEGMENT.fullmatch(path) is not None or _CHECKPOINT.fullmatch(path) is not None


def _is_staged(path: str) -> bool:
    return _STAGED.fullmatch(path) is not None


def build(folder: Path, manifest: Manifest, find: Find) -> None:
    """Create a folder with the files of a snapshot, and flush it to disk.

    Raises SnapshotMissingError or SnapshotDamagedError, which name the file; the folder is then incomplete.
    """
    published: dict[str, Path] = {}
    files, folders = [], {folder}
    with disk_full_errors():
        folder.mkdir(mode=0o700)
        # Create segments before staged files: a staged segment that is published is a link to the same file.
        for piece in sorted(manifest.pieces, key=lambda piece: (_is_staged(piece.path), piece.path)):
            target = folder / piece.path
            files.append(target)
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
        # Sync everything at the end, so that the disk can write most of it at once.
        sync_all(files)
        sync_all(sorted(folders))


def _make_folders(top: Path, folder: Path) -> list[Path]:
    """Create a private folder below ``top`` and its parents up to there; return them."""
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
"""The file beside a home that records what it was restored from."""
_BEFORE = ".before-"


@dataclass(frozen=True)
class Restored:
    """What a job's home was restored from."""

    revision: int
    """The revision of the job that made the snapshot."""
    number: int
    """The number of the snapshot."""
    batch: int
    """The last batch whose effects are in it; -1 before the first."""
    bytes_moved: int
    """Bytes fetched over the network by the attempt that succeeded."""
    skipped: tuple[str, ...] = ()
    """The reason for each newer snapshot that could not be used."""


def needs_restore(home: Path, revision: int) -> bool:
    """Return whether the data of ``revision`` of a job has still to be restored as ``home``."""
    done = restored(home)
    return done is None or done.revision < revision or not home.is_dir()


def restored(home: Path) -> Restored | None:
    """Return what a home was last restored from; None if it never was."""
    return _read(home.with_name(MARKER))


def discard_restore(home: Path) -> None:
    """Have an unused home restored again, because there is a newer snapshot."""
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
    """Restore ``home`` from the newest complete snapshot, in ``local`` if given, otherwise by ``client``.

    ``revision`` is the revision that made the snapshot. A call that was interrupted is resumed by the next
    one. ``home`` is replaced only at the end; the old one is renamed to ``home.before-REVISION``. Raises
    NoCompleteSnapshotError, which leaves ``home`` unchanged, NodeRequestError and TransferStoppedError.
    """
    place = home.with_name("restoring")
    ready, built = place / "ready.json", place / home.name
    with disk_full_errors():
        make_private(place)
    result = _read(ready)
    if result is None or result.revision != revision or not (built.is_dir() or home.is_dir()):
        ready.unlink(missing_ok=True)
        source = _Source(job, local, client, place / "objects", stop)
        result = _build_newest(built, revision, source)
        _write_record(ready, result)
    _replace_home(built, home, revision)
    _write_record(home.with_name(MARKER), result)
    _clear(home, place)
    return result


class _Source:
    """The store that a job's snapshots are read from: local, or through a client."""

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
        """How many bytes have been fetched so far."""
        return self._client.fetched if self._local is None and self._client is not None else 0

    def next(self) -> Manifest | None:
        """Return the newest snapshot that was not tried yet."""
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
        """Create the files of a snapshot. Raises SnapshotMissingError and SnapshotDamagedError."""
        check_not_stopped(self._stop)
        shutil.rmtree(folder, ignore_errors=True)
        local = self._local
        if local is not None:
            build(folder, manifest, lambda piece: local.path(self.job, piece.sha256))
        elif self._client is not None:
            self._client.fetch(self.job, manifest, self._objects, self._stop)
            build(folder, manifest, lambda piece: self._objects / piece.sha256)


def _build_newest(built: Path, revision: int, source: _Source) -> Restored:
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
    raise NoCompleteSnapshotError(source.job, source.name, source.skipped)


def _replace_home(built: Path, home: Path, revision: int) -> None:
    """Rename the restored folder to ``home``, unless an earlier call did."""
    if not built.is_dir():
        return
    if home.is_dir():
        aside = home.with_name(f"{home.name}{_BEFORE}{revision}")
        shutil.rmtree(aside, ignore_errors=True)
        home.rename(aside)
    built.rename(home)
    sync(home.parent)


def _clear(home: Path, place: Path) -> None:
    """Remove the working folder, and all but the latest of the replaced homes."""
    prefix = f"{home.name}{_BEFORE}"
    names = [path.name.removeprefix(prefix) for path in home.parent.iterdir() if path.name.startswith(prefix)]
    for revision in sorted(int(name) for name in names if name.isdigit())[:-1]:
        shutil.rmtree(home.with_name(f"{prefix}{revision}"), ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)


def _write_record(path: Path, result: Restored) -> None:
    write_durably(path, json.dumps(asdict(result), sort_keys=True).encode())


def _read(path: Path) -> Restored | None:
    """Read a record; None when there is none or it is not valid."""
    try:
        content = json.loads(path.read_bytes())
        result = Restored(**{**content, "skipped": tuple(content["skipped"])})
        return result if type(result.revision) is int else None
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
