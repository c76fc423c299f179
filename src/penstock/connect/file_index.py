"""An index of the files of a folder in the order in which they were found; the order never changes.

Times of change cannot order files: two may have the same, and one that arrives late may be older than all
that were read. So whoever finds a file first writes its name into an index beside the data, under a lock
and once. A position in the folder is then a number of names, for every reader in every process, and the
index's own number says whether it is still the same index.
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
"""Names that begin so are not data: files that are being written, and what belongs to programs."""

_FORMAT = "penstock.files"
_SETTLED = 2.0
"""Seconds after which a folder's time of change tells a change from the one before it."""

_LOOK_AGAIN = 30.0
"""Seconds after which a folder is listed although its time of change is the same: clocks may differ."""


class IndexedFile(NamedTuple):
    """A file as it was when it was found."""

    name: str
    size: int
    changed: int
    """When it was changed last, in nanoseconds."""


class FileIndex:
    """The index of one folder and pattern. The files are those of the folder itself, not of folders in it."""

    def __init__(
        self,
        folder: Path,
        pattern: str,
        index: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._pattern = pattern
        # Readers with other patterns see other files, so they count them in an index of their own. One
        # that lies beside the data can be moved with it.
        self._place = folder / ".penstock" if index is None else index
        counted = pattern if index is None else f"{folder}\n{pattern}"
        name = hashlib.sha256(counted.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._path = self._place / f"{name}.files"
        self._clock = clock
        self._files: list[IndexedFile] = []
        self._names: set[str] = set()
        self._id = 0
        self._read = 0
        self._inode = 0
        self._seen = (0, 0.0)

    @property
    def id(self) -> int:
        """A number that no other index has; 0 before there is one."""
        return self._id

    def look(self) -> list[IndexedFile]:
        """Add what is new in the folder, and return all files that were ever found."""
        changed, now = self._folder_changed(), self._clock()
        settled = changed / 1e9 + _SETTLED < self._seen[1] and now < self._seen[1] + _LOOK_AGAIN
        if changed == self._seen[0] and settled and self._path.exists():
            return self.known()
        present = self._present()
        self.known()
        if not self._id or any(name not in self._names for name in present):
            with self._locked() as descriptor:
                self._catch_up(descriptor)
                new = sorted(
                    (self._stat(name) for name in present if name not in self._names),
                    key=lambda file: (file.changed, file.name),
                )
                self._append(descriptor, [file for file in new if file.changed >= 0])
                self._catch_up(descriptor)
        self._seen = (changed, now)
        return self._files

    def known(self) -> list[IndexedFile]:
        """Return the files that were found before now, by any reader."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._forget()
            return self._files
        try:
            self._catch_up(descriptor)
        finally:
            os.close(descriptor)
        return self._files

    def _folder_changed(self) -> int:
        try:
            return self.folder.stat().st_mtime_ns
        except OSError as error:
            raise self._unreadable(error) from None

    def _present(self) -> list[str]:
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
            return SettingError(f"there is no folder {self.folder}: make it, or name another one")
        return SettingError(f"the folder {self.folder} cannot be read: {error.strerror}")

    def _stat(self, name: str) -> IndexedFile:
        try:
            status = (self.folder / name).stat()
        except OSError:
            return IndexedFile(name, 0, -1)  # gone again before anybody counted it
        return IndexedFile(name, status.st_size, status.st_mtime_ns)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SettingError(
                f"the order of the files in {self.folder} is kept in {self._place}, which cannot be written:"
                f" {error.strerror}. Give FileSource a folder for it with index="
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, files: list[IndexedFile]) -> None:
        """Write names down, in one piece, and see that the disk has them: positions depend on it."""
        lines = [json.dumps(file) + "\n" for file in files]
        if not self._id:
            number = int.from_bytes(os.urandom(6), "big") | 1
            lines.insert(0, json.dumps({"format": _FORMAT, "version": 1, "id": number}) + "\n")
        if not lines:
            return
        # A line that a crash cut off is overwritten: it has no newline, so nobody has counted it.
        os.ftruncate(descriptor, self._read)
        written, data = self._read, "".join(lines).encode()
        while data:
            count = os.pwrite(descriptor, data, written)
            written, data = written + count, data[count:]
        os.fsync(descriptor)

    def _catch_up(self, descriptor: int) -> None:
        """Read the lines that have come since the last look."""
        status = os.fstat(descriptor)
        if status.st_ino != self._inode or status.st_size < self._read:
            self._forget()
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
                    f"{self._path} is damaged: the order of found files is lost. Restore a copy, or remove "
                    "it and start the jobs that read the folder with fresh=True (--fresh)"
                ) from None
        self._names.update(file.name for file in self._files[len(self._names) :])
        self._read += len(whole)

    def _forget(self) -> None:
        self._files, self._names, self._id, self._read, self._inode = [], set(), 0, 0, 0

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "_pattern": self._pattern, "_place": self._place, "_path": self._path}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._clock, self._seen = time.time, (0, 0.0)
        self._forget()
