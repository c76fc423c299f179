"""Files that only their owner can read, replaced whole or not at all; and what brings them to the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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
