"""Shared files: the state that one task has written in one batch, with a section for each bucket.

A file has a header, the sections one after another, and an index of the sections. A reader reads the header,
the index and the sections that it wants. The header has the length of the file and checksums of itself and of
the index, and the index has the checksums of the sections, so a truncated or altered file is detected.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.engine.storage.serialization import (
    UNSEALED,
    damage_error,
    missing_error,
    pack,
    unpack,
    write_error,
)
from penstock.engine.storage.state_chain import StateFile
from penstock.local_files import sync

_MAGIC = b"PENSTKS1"
_HEADER = struct.Struct("<8sQQII")
"""The magic bytes, the lengths of the file and of the index, the checksums of the index and of the header."""
_CHECKED = _HEADER.size - 4
"""How many bytes of the header its checksum covers."""


@dataclass(frozen=True)
class Section:
    """Where the section of a bucket is in a shared file, and which file its chain continues with."""

    offset: int
    length: int
    checksum: int
    parent: StateFile | None


class SharedFileWriter:
    """Writes a shared file, section by section. It gets its name when it is complete."""

    def __init__(self, path: Path, *, synced: bool = False) -> None:
        self._path = path
        self._unsealed = path.with_name(f"{path.name}{UNSEALED}")
        self._synced = synced
        self._file: BinaryIO | None = None
        self._sections: list[tuple[int, int, int, StateFile | None]] = []
        """The bucket, the length, the checksum and the parent of each section."""

    def add(self, bucket: int, parent: StateFile | None, data: bytes) -> None:
        """Write the section of a bucket; raises JobFailedError if the disk is full or fails."""
        try:
            if self._file is None:
                self._file = self._create()
            self._file.write(data)
        except OSError as error:
            raise write_error(self._path, error) from error
        self._sections.append((bucket, len(data), zlib.crc32(data), parent))

    def finish(self) -> int:
        """Complete the file and return its size; 0 if there is no section, and therefore no file."""
        if self._file is None:
            return 0
        index = self._index()
        length = _HEADER.size + sum(size for _, size, _, _ in self._sections) + len(index)
        header = _HEADER.pack(_MAGIC, length, len(index), zlib.crc32(index), 0)[:_CHECKED]
        try:
            with self._file as file:
                file.write(index)
                file.seek(0)
                file.write(header + struct.pack("<I", zlib.crc32(header)))
                if self._synced:
                    file.flush()
                    os.fsync(file.fileno())
            self._unsealed.rename(self._path)
            if self._synced:
                sync(self._path.parent)
        except OSError as error:
            raise write_error(self._path, error) from error
        self._file = None
        return length

    def discard(self) -> None:
        """Remove what is written, unless the file is complete."""
        if self._file is not None:
            with suppress(OSError):  # What is still buffered cannot be written if the disk is full.
                self._file.close()
            with suppress(OSError):
                self._unsealed.unlink(missing_ok=True)
            self._file = None

    def _create(self) -> BinaryIO:
        folder = self._path.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._synced:
                sync(folder.parent)
        file = os.fdopen(os.open(self._unsealed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        file.write(bytes(_HEADER.size))
        return file

    def _index(self) -> bytes:
        # Chains of one task mostly have the same parent, which is named once.
        parents = list(dict.fromkeys(parent for *_, parent in self._sections if parent is not None))
        numbers = {parent: number for number, parent in enumerate(parents)}
        buckets, lengths, checksums, _ = map(list, zip(*self._sections, strict=True))
        return pack(
            (
                buckets,
                lengths,
                checksums,
                [numbers[parent] if parent is not None else None for *_, parent in self._sections],
                [parent.name for parent in parents],
                [parent.shared for parent in parents],
            )
        )


class SharedFile:
    """An open shared file, whose header and index are sound.

    Raises JobFailedError if the file is missing, truncated or altered.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise missing_error(path) from None
        try:
            self.sections = self._read_index()
            """The sections by bucket."""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SharedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def read(self, bucket: int) -> tuple[StateFile | None, bytes]:
        """Return the section of a bucket, and which file its chain continues with."""
        section = self.sections.get(bucket)
        if section is None:
            raise damage_error(self._path, f"it has no section of bucket {bucket}")
        return section.parent, self._section(bucket, section)

    def read_whole(self) -> bytes:
        """Return the content of the file; all sections are checked."""
        for bucket, section in self.sections.items():
            self._section(bucket, section)
        return self._bytes(0, os.fstat(self._descriptor).st_size)

    def _read_index(self) -> dict[int, Section]:
        size = os.fstat(self._descriptor).st_size
        if size < _HEADER.size:
            raise damage_error(self._path, "it ends within its header")
        header = self._bytes(0, _HEADER.size)
        magic, length, index_length, index_checksum, checksum = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise damage_error(self._path, "its header is not one of Penstock's")
        if zlib.crc32(header[:_CHECKED]) != checksum:
            raise damage_error(self._path, "the checksum of its header does not match")
        if size != length:
            raise damage_error(self._path, f"{size} bytes of {length}")
        index = self._bytes(length - index_length, index_length)
        if zlib.crc32(index) != index_checksum:
            raise damage_error(self._path, "the checksum of its index does not match")
        buckets, lengths, checksums, numbers, names, shared = unpack(index)
        parents = [StateFile(*parent) for parent in zip(names, shared, strict=True)]
        found: dict[int, Section] = {}
        offset = _HEADER.size
        for bucket, size, check, number in zip(buckets, lengths, checksums, numbers, strict=True):
            found[bucket] = Section(offset, size, check, parents[number] if number is not None else None)
            offset += size
        return found

    def _section(self, bucket: int, section: Section) -> bytes:
        data = self._bytes(section.offset, section.length)
        if zlib.crc32(data) != section.checksum:
            raise damage_error(self._path, f"the checksum of the section of bucket {bucket} does not match")
        return data

    def _bytes(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                raise damage_error(self._path, f"it ends at byte {offset + len(data)}")
            data += more
        return data
