"""The files of a snapshot under the names of their digests: links to those of a job's home."""

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
    """A folder of links.

    A link keeps the file it leads to, and with it the number that the file system gave it. As long as the
    link is there, a file of that number is this file: its digest is known.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._names: dict[int, str] = {}
        """By the file system's number of a file: the name of its link."""
        self._sizes: dict[str, int] = {}
        for file in os.scandir(folder):
            self._names[file.inode()] = file.name
        self.drop_new()  # Their digests were not computed any more.

    def file(self, name: str) -> Path:
        """Return where a file is held."""
        return self._folder / name

    def open(self, sha256: str) -> BinaryIO:
        """Open a file that is held."""
        return (self._folder / sha256).open("rb")

    def hold(self, path: str, inode: int | None = None) -> str:
        """Hold a file of the home, and return the name of the link; FileNotFoundError when it is gone."""
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
        """Copy a file of the home that must not get a second name."""
        name = f"{_NEW}{uuid4().hex}"
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target, (self._home / path).open("rb") as source:
            shutil.copyfileobj(source, target, _PIECE)
        self._names[(self._folder / name).stat().st_ino] = name
        return name

    def same(self, path: str, name: str) -> bool:
        """Whether a file of the home is still the one that is held."""
        try:
            return (self._home / path).stat().st_ino == (self._folder / name).stat().st_ino
        except FileNotFoundError:
            return False

    def settle(self, name: str) -> tuple[str, int]:
        """Name a file by its digest; return that and its size."""
        file = self._folder / name
        if not name.startswith(_NEW):
            if name not in self._sizes:
                self._sizes[name] = file.stat().st_size
            return name, self._sizes[name]
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            status = os.fstat(content.fileno())
        if (self._folder / sha256).exists():
            # The same content twice. The number of this second file will not be kept from being given to
            # another one.
            del self._names[status.st_ino]
            file.unlink()
        else:
            file.rename(self._folder / sha256)
            self._names[status.st_ino] = sha256
        return sha256, status.st_size

    def drop_new(self) -> None:
        """Let go of what has no digest yet."""
        self._drop({name for name in self._names.values() if name.startswith(_NEW)})

    def keep_only(self, names: Iterable[str]) -> None:
        """Let go of everything else."""
        kept = set(names)
        self._drop({name for name in self._names.values() if name not in kept})

    def _drop(self, names: set[str]) -> None:
        for inode in [inode for inode, name in self._names.items() if name in names]:
            with suppress(FileNotFoundError):
                (self._folder / self._names[inode]).unlink()
            self._sizes.pop(self._names.pop(inode), None)
