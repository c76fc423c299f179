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
_EXISTS = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def unpack(bundle: bytes, folder: Path) -> BundleManifest:
    """Write the files of a bundle and its manifest into a new folder.

    The folder appears completely or not at all, also after a crash or with concurrent calls. An existing
    folder is compared with the bundle and not changed. The signature is not checked: verify it first.

    Raises BundleError for an invalid bundle, and BundleAccessError for a problem with the folder.
    """
    opened = open_bundle(bundle)
    if not (folder / MANIFEST).exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = _temporary_name(folder)
        try:
            _write(opened, staged)
            staged.rename(folder)
            return opened.manifest
        except OSError as error:
            # Another process has created the folder: compare it with the bundle below.
            if error.errno not in _EXISTS:
                raise BundleAccessError(
                    f"the bundle cannot be unpacked to {folder}: {error.strerror}"
                ) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    check_folder(opened, folder)
    return opened.manifest


def folder_fault(folder: Path) -> str | None:
    """Return what is wrong with an unpacked bundle, or None if each file exists with its size.

    This takes one system call per file at each start of a process. :func:`check_folder` reads all files.
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
    """Unpack a bundle again and replace its damaged folder; raises the errors of :func:`unpack`.

    Running processes may import from the folder, so it is removed only when the new one is complete.
    """
    fresh, damaged = _temporary_name(folder), _temporary_name(folder)
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
    """Remove temporary folders that crashes have left. No other process may be unpacking there."""
    for left in sorted(parent.glob(".*")):
        if _STAGED.search(left.name):
            shutil.rmtree(left, ignore_errors=True)


def _temporary_name(folder: Path) -> Path:
    """Return a temporary name beside a folder."""
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
    """Raise BundleAccessError unless the files of a folder are equal to those of the bundle."""
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
            raise BundleAccessError(f"{path} differs from the file in the bundle: remove {folder}")
