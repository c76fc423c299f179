"""The files of a snapshot, named by their digests: hard links to the files of a job's home."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

_NEW = "new-"
_PIECE = 1 << 20


class LinkCache:
    """A folder of hard links.

    As long as a link exists, the file system does not reuse the file's inode number. A file of the home with
    the same inode is therefore the same file, and its digest is known.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._names: dict[int, str] = {}
        """By inode number: the name of the link."""
        self._sizes: dict[str, int] = {}
        for file in os.scandir(folder):
            self._names[file.inode()] = file.name
        self.drop_new()  # An earlier process ended before it computed their digests.

    def file(self, name: str) -> Path:
        """Return the path of a held file."""
        return self._folder / name

    def open(self, sha256: str) -> BinaryIO:
        """Open a held file."""
        return (self._folder / sha256).open("rb")

    def hold(self, path: str, inode: int | None = None) -> str:
        """Link a file of the home and return the link's name; FileNotFoundError if it does not exist."""
        known = self._names.get(inode) if inode is not None else None
        if known is not None:
            return known
        name = f"{_NEW}{uuid4().hex}"
        os.link(self._home / path, self._folder / name, follow_symlinks=False)
        inode = (self._folder / name).stat().st_ino
        known = self._names.get(inode)
        if known is not None:
            (self._folder / name).unlink()
            return known
        self._names[inode] = name
        return name

    def copy(self, path: str) -> str:
        """Copy a file of the home that must not get a second link."""
        name = f"{_NEW}{uuid4().hex}"
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target, (self._home / path).open("rb") as source:
            shutil.copyfileobj(source, target, _PIECE)
        self._names[(self._folder / name).stat().st_ino] = name
        return name

    def is_same(self, path: str, name: str) -> bool:
        """Return whether a file of the home is still the held one."""
        try:
            return (self._home / path).stat().st_ino == (self._folder / name).stat().st_ino
        except FileNotFoundError:
            return False

    def digest(self, name: str) -> tuple[str, int]:
        """Rename a held file to its digest, and return the digest and the size."""
        file = self._folder / name
        if not name.startswith(_NEW):
            if name not in self._sizes:
                self._sizes[name] = file.stat().st_size
            return name, self._sizes[name]
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            status = os.fstat(content.fileno())
        if (self._folder / sha256).exists():
            # Another file has the same content. This one is not held any more, so its inode may be reused.
            del self._names[status.st_ino]
            file.unlink()
        else:
            file.rename(self._folder / sha256)
            self._names[status.st_ino] = sha256
        return sha256, status.st_size

    def drop_new(self) -> None:
        """Drop files without a digest."""
        self._drop({name for name in self._names.values() if name.startswith(_NEW)})

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop all other files."""
        kept = set(names)
        self._drop({name for name in self._names.values() if name not in kept})

    def _drop(self, names: set[str]) -> None:
        for inode in [inode for inode, name in self._names.items() if name in names]:
            with suppress(FileNotFoundError):
                (self._folder / self._names[inode]).unlink()
            self._sizes.pop(self._names.pop(inode), None)
