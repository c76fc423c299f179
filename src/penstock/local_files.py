"""Local paths and files.

The home folder, paths given by users (addresses of object stores are rejected), atomic replacement of private
files, and fsync.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import SettingError


def write_private(path: Path, content: bytes | str) -> None:
    """Atomically replace a file with one that only its owner can read."""
    data = content.encode() if isinstance(content, str) else content
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    staged.replace(path)


def sync_with_parents(folder: Path) -> None:
    """Sync a folder and all its parents, so that their entries are on the disk."""
    for path in (folder, *folder.absolute().parents):
        with suppress(PermissionError):  # It belongs to another user, who has created its entries.
            sync(path)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ADDRESS = re.compile(r"\s*([A-Za-z][A-Za-z0-9_+.-]+):/")
"""Matches addresses: one slash after the colon, because pathlib merges two, and at least two letters before
it, because one letter is a drive. Invented schemes may contain underscores."""


def local_path(what: str, given: Any) -> Path:
    """Return an absolute path; raises SettingError for an address such as ``s3a://bucket``.

    >>> local_path("FileSink: folder", "hdfs://host/out")
    Traceback (most recent call last):
    penstock.errors.SettingError: FileSink: folder takes a path of a mounted file system, not \
hdfs://host/out: Penstock does not support hdfs, and would create a folder 'hdfs:'
    """
    if not isinstance(given, str | Path) or not str(given):
        raise SettingError(f"{what} takes a path, not {given!r:.60}")
    address = _ADDRESS.match(str(given))
    if address is None:
        return Path(given).absolute()
    scheme = address[1]
    rest = str(given)[address.end() :].lstrip("/")
    if scheme == "file":
        raise SettingError(f"{what} takes a path, not an address: leave {scheme}:// out of {scheme}://{rest}")
    raise SettingError(
        f"{what} takes a path of a mounted file system, not {scheme}://{rest}: Penstock does not support"
        f" {scheme}, and would create a folder {scheme + ':'!r}"
    )


def home() -> Path:
    """Return the folder of Penstock's files of this user: ``$PENSTOCK_HOME`` or ``~/.penstock``.

    >>> home().is_absolute()
    True
    """
    configured = os.environ.get("PENSTOCK_HOME")
    return local_path("PENSTOCK_HOME", configured) if configured else Path.home() / ".penstock"


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, accessible to this user only."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, exclusively by default, unless another process holds it; return whether it worked.

    The kernel releases the lock when the file is closed or its process dies.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
