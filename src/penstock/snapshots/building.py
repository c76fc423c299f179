"""Makes the files of a snapshot from its objects, each checked by its digest on the way.

A file that nobody ever writes to again can be one with its object: a hard link, which costs nothing. What a
job writes in place is copied, and so are segments that are not published yet: their log takes a second link
to such a file for the sign that it is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from penstock.snapshots.durable import disk_full_errors, make_private, sync_all
from penstock.snapshots.errors import SnapshotDamagedError, SnapshotMissingError
from penstock.snapshots.manifest import Manifest, SnapshotFile

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
