"""The positions of a log's readers: one small file for each reader, replaced atomically."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from penstock.local_files import make_folder
from penstock.log.segment_staging import file_name

_SUFFIX = ".json"
_MAX_NAME = 150


@dataclass(frozen=True)
class Reader:
    """A reader, and for each partition the position before which it needs no records any more."""

    name: str
    positions: dict[int, int]
    time: float
    """When the positions were stored, in seconds since the epoch."""


class ReaderPositions:
    """The readers of one log.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> readers = ReaderPositions(Path(folder.name) / "readers", Path(folder.name))
    >>> readers.note("shop.orders", {0: 5, 1: 7}, now=12.0)
    >>> readers.all()
    [Reader(name='shop.orders', positions={0: 5, 1: 7}, time=12.0)]
    >>> readers.forget("shop.orders"), readers.forget("shop.orders")
    (True, False)
    """

    def __init__(self, folder: Path, staging: Path) -> None:
        self._folder = folder
        self._staging = staging

    def note(self, name: str, positions: Mapping[int, int], now: float | None = None) -> None:
        """Store the positions of a reader."""
        content = {
            "reader": name,
            "positions": {str(number): position for number, position in sorted(positions.items())},
            "time": time.time() if now is None else now,
        }
        written = self._staging / file_name("reader", os.urandom(16).hex())
        try:
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            try:
                written.replace(self._file(name))
            except FileNotFoundError:  # a log of format version 1 has no such folder
                make_folder(self._folder)
                written.replace(self._file(name))
        except BaseException:
            written.unlink(missing_ok=True)
            raise

    def all(self) -> list[Reader]:
        """Return all readers, sorted by name."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        found = (self._read(self._folder / name) for name in names if name.endswith(_SUFFIX))
        return sorted((reader for reader in found if reader is not None), key=lambda reader: reader.name)

    def forget(self, name: str) -> bool:
        """Remove a reader; return False when there is none of that name."""
        for file in (self._file(name), self._folder / (name + _SUFFIX)):
            # An unreadable file is listed under its file name, the second candidate. That name comes from
            # the user and must not lead out of the folder.
            if file.parent == self._folder and file.exists():
                file.unlink(missing_ok=True)
                return True
        return False

    def _file(self, name: str) -> Path:
        safe = quote(name, safe="", errors="surrogatepass")
        if len(safe) > _MAX_NAME or safe != name:
            # Add a hash: the name is truncated, or a file system may treat it as equal to another one.
            safe = f"{safe[:_MAX_NAME]}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        return self._folder / (safe + _SUFFIX)

    def _read(self, file: Path) -> Reader | None:
        try:
            found = json.loads(file.read_bytes())
            positions = {int(number): int(position) for number, position in found["positions"].items()}
            return Reader(str(found["reader"]), positions, float(found["time"]))
        except FileNotFoundError:
            return None  # removed since the folder was listed
        except (ValueError, TypeError, KeyError, AttributeError):
            # The file was damaged by a power cut. Assume that this reader has consumed nothing.
            return Reader(file.name.removesuffix(_SUFFIX), {}, 0.0)


def consumed_by_all(readers: Iterable[Reader], partitions: int) -> dict[int, int]:
    """Return for each partition the position that every reader has passed; empty without readers.

    >>> ann, bob = Reader("ann", {0: 5, 1: 9}, 0.0), Reader("bob", {0: 7}, 0.0)
    >>> consumed_by_all([ann, bob], partitions=2)
    {0: 5, 1: 0}
    """
    known = list(readers)
    if not known:
        return {}
    return {number: min(reader.positions.get(number, 0) for reader in known) for number in range(partitions)}
