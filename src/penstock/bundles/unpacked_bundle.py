"""Unpacks a bundle into a folder that a worker imports from."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from penstock.bundles.bundle_archive import OpenedBundle, open_bundle
from penstock.bundles.bundle_manifest import MANIFEST, BundleManifest, read_manifest
from penstock.bundles.bundle_signature import BundleAccessError

_STAGED = re.compile(r"\.[0-9a-f]{16}$")
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def unpack(bundle: bytes, folder: Path) -> BundleManifest:
    """Write the files of a bundle, and its manifest, into a new folder.

    Raises BundleError when something is wrong with the bundle, and BundleAccessError with the folder.

    The folder appears complete or not at all, whoever crashes or does the same meanwhile. One that is
    there is compared with the bundle and left as it is. The signature is not looked at: verify it first.
    """
    opened = open_bundle(bundle)
    if not (folder / MANIFEST).exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = _aside(folder)
        try:
            _write(opened, staged)
            staged.rename(folder)
            return opened.manifest
        except OSError as error:
            # Somebody else was faster, with the same bundle or another: that is seen below.
            if error.errno not in _TAKEN:
                raise BundleAccessError(
                    f"the bundle cannot be unpacked to {folder}: {error.strerror}"
                ) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    check_folder(opened, folder)
    return opened.manifest


def folder_fault(folder: Path) -> str | None:
    """Return what an unpacked bundle lacks, or None when each file is there with its size.

    This takes one system call a file, at each start of a process. :func:`check_folder` reads all of them.
    """
    try:
        manifest = read_manifest(folder)
    except BundleAccessError as error:
        return str(error)
    for name, file in sorted(manifest.files.items()):
        path = folder / name
        try:
            found = path.lstat()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if not stat.S_ISREG(found.st_mode):
            return f"{path} is not a regular file"
        if found.st_size != file.size:
            return f"{path} has {found.st_size} bytes instead of {file.size}"
    return None


def replace_unpacked(bundle: bytes, folder: Path) -> BundleManifest:
    """Replace a damaged folder by what :func:`unpack` makes of its bundle; raises what that does.

    Living processes may import from the folder: it is removed only when the new one is complete.
    """
    fresh, damaged = _aside(folder), _aside(folder)
    try:
        manifest = unpack(bundle, fresh)
        if folder.exists():
            folder.rename(damaged)
        fresh.rename(folder)
    except OSError as error:
        raise BundleAccessError(f"{folder} cannot be replaced: {error.strerror}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(damaged, ignore_errors=True)
    return manifest


def remove_stale_folders(parent: Path) -> None:
    """Remove what crashes have left beside unpacked bundles; only while nobody unpacks there."""
    for left in sorted(parent.glob(".*")):
        if _STAGED.search(left.name):
            shutil.rmtree(left, ignore_errors=True)


def _aside(folder: Path) -> Path:
    """Return a name beside a folder for what is not yet it, or no more."""
    return folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")


def _write(opened: OpenedBundle, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    made = {folder}
    for file in opened.files:
        path = folder / file.filename
        for above in reversed(path.relative_to(folder).parents[:-1]):
            if folder / above not in made:
                (folder / above).mkdir(mode=0o700)
                made.add(folder / above)
        with _created(path) as target:
            for piece in opened.read(file):
                target.write(piece)
    with _created(folder / MANIFEST) as target:
        target.write(opened.manifest_data)


def _created(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "wb")


def check_folder(opened: OpenedBundle, folder: Path) -> None:
    """Raise BundleAccessError unless a folder has the files of a bundle as they are in it."""
    wanted = {name: file.sha256 for name, file in opened.manifest.files.items()}
    wanted[MANIFEST] = hashlib.sha256(opened.manifest_data).hexdigest()
    for name, sha256 in wanted.items():
        path = folder / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BundleAccessError(f"{path} cannot be read ({error.strerror}): remove {folder}") from error
        if found != sha256 or path.is_symlink():
            raise BundleAccessError(f"{path} is not the file of the bundle: it was changed; remove {folder}")
