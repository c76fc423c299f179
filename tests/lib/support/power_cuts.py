"""A disk that loses, at a power cut, whatever nobody has brought to it.

Of a file, what it held when it was last synced is left, and nothing if it never was. Of a folder, the names
are left that it had when it was last synced: later ones are gone, removed ones are back. No file system is
worse, and a program that survives this survives on all of them.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

Tree = dict[str, bytes | None]
"""By path below the root: what a file holds; None for a folder."""


class Disk:
    """What would be left of a folder after a power cut, noted at each ``os.fsync`` of this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self._kept: dict[int, int] = {}
        """A descriptor of each file that is known, so that its number is not given to another one."""
        self.cuts: list[Tree] = []
        """What a power cut would have left before each sync."""
        for folder, _, names in os.walk(root):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                descriptor = os.open(path, os.O_RDONLY)
                self._note(descriptor)
                os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Stand in for ``os.fsync``."""
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(self._root):
            self.cuts.append(self.left())
            self._note(descriptor)

    def left(self) -> Tree:
        """Return what a power cut would leave now."""
        tree: Tree = {}
        self._collect(self._root.stat().st_ino, "", tree)
        return tree

    def cut(self, tree: Tree) -> None:
        """Make the root what a power cut has left of it."""
        shutil.rmtree(self._root)
        self._root.mkdir(mode=0o700)
        for path, content in tree.items():
            if content is None:
                (self._root / path).mkdir(mode=0o700)
            else:
                (self._root / path).write_bytes(content)
                (self._root / path).chmod(0o600)

    def close(self) -> None:
        """Let go of all files."""
        for descriptor in self._kept.values():
            os.close(descriptor)

    def _note(self, descriptor: int) -> None:
        number = self._keep(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            names = {}
            for name in os.listdir(descriptor):
                inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
                names[name] = self._keep(inner)
                os.close(inner)
            self._folders[number] = names
        else:
            size = os.fstat(descriptor).st_size
            reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
            self._files[number] = os.pread(reader, size, 0)
            os.close(reader)

    def _keep(self, descriptor: int) -> int:
        number = os.fstat(descriptor).st_ino
        if number not in self._kept:
            self._kept[number] = os.dup(descriptor)
        return number

    def _collect(self, folder: int, path: str, tree: Tree) -> None:
        for name, number in sorted(self._folders.get(folder, {}).items()):
            inner = f"{path}/{name}" if path else name
            if stat.S_ISDIR(os.fstat(self._kept[number]).st_mode):
                tree[inner] = None
                self._collect(number, inner, tree)
            else:
                tree[inner] = self._files.get(number, b"")
