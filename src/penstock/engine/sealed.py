"""Small files that are either whole or known to be damaged: a header with length and checksum, then data."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from penstock.errors import JobFailedError
from penstock.private_files import sync

_HEADER = struct.Struct("<8sQI")
_MAGIC = b"PENSTK01"
_ADVICE = "Put it back from a copy of the job's folder, or start from scratch with fresh=True (--fresh)"
UNSEALED = ".new"
"""What the name of a file ends with as long as it is being written."""


def write_sealed(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Write a new file that nobody else writes; raises JobFailedError when there is no room for it.

    With ``synced`` it is on the disk then. It has its name when it is whole: a snapshot may take a file that
    a task which was given up still writes.
    """
    header = _HEADER.pack(_MAGIC, len(data), zlib.crc32(data))
    unsealed = path.with_name(f"{path.name}{UNSEALED}")
    try:
        descriptor = os.open(unsealed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(header)
            file.write(data)
            if synced:
                file.flush()
                os.fsync(descriptor)
        unsealed.rename(path)
        if synced:
            sync(path.parent)
    except OSError as error:
        unsealed.unlink(missing_ok=True)
        raise JobFailedError(
            f"{path} cannot be written: {error.strerror}. The batch has not happened: see to the disk and"
            " start the job again"
        ) from error


def read_sealed(path: Path) -> bytes:
    """Read such a file; raises JobFailedError when it is missing, torn or altered."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise JobFailedError(f"{path} is missing: the job's folder has been altered. {_ADVICE}") from None
    if len(content) < _HEADER.size:
        raise _damaged(path, "it ends within its header")
    magic, length, checksum = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    if magic != _MAGIC:
        raise _damaged(path, "its header is not one of Penstock's")
    if len(data) != length:
        raise _damaged(path, f"{len(data)} bytes of {length}")
    if zlib.crc32(data) != checksum:
        raise _damaged(path, "its checksum does not match")
    return data


def _damaged(path: Path, reason: str) -> JobFailedError:
    return JobFailedError(f"{path} is damaged: {reason}. {_ADVICE}")
