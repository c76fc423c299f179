"""Local paths and files.

The home folder, paths of users (addresses of object stores are refused), private files that are replaced as
a whole, and fsync.
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
    """Replace a file at once by one that only its owner can read."""
    data = content.encode() if isinstance(content, str) else content
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    staged.replace(path)


def sync_with_parents(folder: Path) -> None:
    """Bring the names in a folder to the disk, and its own name and those of the folders above it."""
    for path in (folder, *folder.absolute().parents):
        with suppress(PermissionError):  # It is somebody else's, who has made what is in it.
            sync(path)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ADDRESS = re.compile(r"\s*([A-Za-z][A-Za-z0-9_+.-]+):/")
"""A path that is made of an address has one slash behind the colon. A drive has one letter before it. Schemes
have no underscores, but names of object stores that people make up do."""


def local_path(what: str, given: Any) -> Path:
    """Return an absolute path; an address such as ``s3a://bucket`` would become a folder ``s3a:`` here.

    >>> local_path("FileSink: folder", "hdfs://host/out")
    Traceback (most recent call last):
    penstock.errors.SettingError: FileSink: folder takes a path of a file system that is mounted here, not \
hdfs://host/out: Penstock knows no hdfs, and would make a folder 'hdfs:' of it
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
        f"{what} takes a path of a file system that is mounted here, not {scheme}://{rest}: Penstock knows no"
        f" {scheme}, and would make a folder {scheme + ':'!r} of it"
    )


def home() -> Path:
    """The folder of everything Penstock keeps for this user: ``$PENSTOCK_HOME`` or ``~/.penstock``.

    >>> home().is_absolute()
    True
    """
    configured = os.environ.get("PENSTOCK_HOME")
    return local_path("PENSTOCK_HOME", configured) if configured else Path.home() / ".penstock"


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone."""
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
