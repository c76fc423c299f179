"""An index of the files of a folder in the order of their discovery, which never changes.

Modification times cannot order files: two may be equal, and a file that arrives late may be older than all
files read before. So the first process that finds a file appends its name to an index beside the data, under
a lock. A position in the folder is then a number of names, the same for all readers in all processes. The
index has an id, which shows whether it was replaced by another one.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.errors import FolderError, SettingError

HIDDEN = (".", "_")
"""Prefixes of names that are not data: incomplete files and files of programs."""

_FORMAT = "penstock.files"
_MTIME_RESOLUTION = 2.0
"""Seconds after which another change of a folder is certain to change its modification time."""

_RELIST_AFTER = 30.0
"""Seconds after which an apparently unchanged folder is listed anyway, since clocks may differ."""


class IndexedFile(NamedTuple):
    """Name, size and modification time of a file at its discovery."""

    name: str
    size: int
    changed: int
    """Modification time in nanoseconds."""


class FileIndex:
    """The index of one folder and pattern, without the files of subfolders."""

    def __init__(
        self,
        folder: Path,
        pattern: str,
        index: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._pattern = pattern
        # Each pattern selects other files and needs its own index. The name of an index beside the data does
        # not depend on the folder, so that both can be moved together.
        self._index_folder = folder / ".penstock" if index is None else index
        identity = pattern if index is None else f"{folder}\n{pattern}"
        name = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._path = self._index_folder / f"{name}.files"
        self._clock = clock
        self._files: list[IndexedFile] = []
        self._names: set[str] = set()
        self._id = 0
        self._read = 0
        self._inode = 0
        self._last_listing = (0, 0.0)

    @property
    def id(self) -> int:
        """A random number that identifies the index; 0 before it exists."""
        return self._id

    def update(self) -> list[IndexedFile]:
        """Add new files of the folder to the index, and return all files that were ever found."""
        changed, now = self._folder_changed(), self._clock()
        changed_before, listed_at = self._last_listing
        settled = changed / 1e9 + _MTIME_RESOLUTION < listed_at and now < listed_at + _RELIST_AFTER
        if changed == changed_before and settled and self._path.exists():
            return self.indexed()
        present = self._list_folder()
        self.indexed()
        if not self._id or any(name not in self._names for name in present):
            with self._locked() as descriptor:
                self._read_new_lines(descriptor)
                new = sorted(
                    (self._stat(name) for name in present if name not in self._names),
                    key=lambda file: (file.changed, file.name),
                )
                self._append(descriptor, [file for file in new if file.changed >= 0])
                self._read_new_lines(descriptor)
        self._last_listing = (changed, now)
        return self._files

    def indexed(self) -> list[IndexedFile]:
        """Return the files that any reader has added to the index so far."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._reset()
            return self._files
        try:
            self._read_new_lines(descriptor)
        finally:
            os.close(descriptor)
        return self._files

    def _folder_changed(self) -> int:
        try:
            return self.folder.stat().st_mtime_ns
        except OSError as error:
            raise self._unreadable(error) from None

    def _list_folder(self) -> list[str]:
        try:
            with os.scandir(self.folder) as entries:
                return [
                    entry.name
                    for entry in entries
                    if not entry.name.startswith(HIDDEN)
                    and fnmatch.fnmatchcase(entry.name, self._pattern)
                    and (entry.name in self._names or entry.is_file())
                ]
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> SettingError:
        if isinstance(error, FileNotFoundError):
            return SettingError(f"there is no folder {self.folder}: create it, or use another folder")
        return SettingError(f"the folder {self.folder} cannot be read: {error.strerror}")

    def _stat(self, name: str) -> IndexedFile:
        try:
            status = (self.folder / name).stat()
        except OSError:
            return IndexedFile(name, 0, -1)  # removed since the folder was listed
        return IndexedFile(name, status.st_size, status.st_mtime_ns)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            self._index_folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SettingError(
                f"the index of the files in {self.folder} cannot be written to {self._index_folder}:"
                f" {error.strerror}. Set another folder for it with FileSource(…, index=…)"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, files: list[IndexedFile]) -> None:
        """Append names to the index and flush it to disk, because positions depend on it."""
        lines = [json.dumps(file) + "\n" for file in files]
        if not self._id:
            number = int.from_bytes(os.urandom(6), "big") | 1
            lines.insert(0, json.dumps({"format": _FORMAT, "version": 1, "id": number}) + "\n")
        if not lines:
            return
        # Overwrite a line cut off by a crash: without its newline, no reader has counted it.
        os.ftruncate(descriptor, self._read)
        written, data = self._read, "".join(lines).encode()
        while data:
            count = os.pwrite(descriptor, data, written)
            written, data = written + count, data[count:]
        os.fsync(descriptor)

    def _read_new_lines(self, descriptor: int) -> None:
        """Read the lines added since the last call."""
        status = os.fstat(descriptor)
        if status.st_ino != self._inode or status.st_size < self._read:
            self._reset()
            self._inode = status.st_ino
        if status.st_size == self._read:
            return
        data = os.pread(descriptor, status.st_size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                found = json.loads(line)
                if self._id:
                    self._files.append(IndexedFile(*found))
                else:
                    self._id = int(found["id"]) if found["format"] == _FORMAT else 0
            except (ValueError, TypeError, KeyError):
                raise FolderError(
                    f"{self._path} is damaged: the order in which files were found is lost. Restore the file"
                    " from a copy, or remove it and start the jobs that read the folder with fresh=True"
                    " (--fresh)"
                ) from None
        self._names.update(file.name for file in self._files[len(self._names) :])
        self._read += len(whole)

    def _reset(self) -> None:
        self._files, self._names, self._id, self._read, self._inode = [], set(), 0, 0, 0

    def __getstate__(self) -> dict[str, object]:
        return {
            "folder": self.folder,
            "_pattern": self._pattern,
            "_index_folder": self._index_folder,
            "_path": self._path,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._clock, self._last_listing = time.time, (0, 0.0)
        self._reset()
