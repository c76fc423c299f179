"""Serialization of Python objects, and sealed files, for the folder and the workers of one job.

A sealed file has a header with length and checksum, so a truncated or altered file is detected. No other job
reads these files.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any, cast

from penstock.errors import JobFailedError
from penstock.local_files import sync

_PLAIN = {str, int, float, bool, bytes, type(None)}


def pack(columns: tuple[Any, ...], *, lasting: bool = False) -> bytes:
    """Pickle a tuple of columns.

    ``lasting`` data is read by other processes, in which a class of the user's main script would be another
    class: such data is rejected, because its keys would never be found again.

    Pickle memoizes every string, which costs eight times as much as writing it; lists of plain values cannot
    contain themselves, so the memo is disabled for them.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.fast = all(_is_plain(column) for column in columns)
    try:
        pickler.dump(columns)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        # An instance of a class of the user's main script: the class must be sent with it.
        if lasting:
            raise TypeError(
                "stored keys and states must be of classes that can be imported: move the class from"
                " the main script into a module beside it"
            ) from None
        import cloudpickle

        return cast(bytes, cloudpickle.dumps(columns, protocol=5))
    return buffer.getvalue()


def unpack(data: bytes | memoryview) -> Any:
    """Read what :func:`pack` wrote."""
    return pickle.loads(data)  # noqa: S301 - written by this job's own workers


def _is_plain(column: Any) -> bool:
    if type(column) in _PLAIN:
        return True
    return type(column) in (list, tuple) and set(map(type, column)) <= _PLAIN


_HEADER = struct.Struct("<8sQI")
_MAGIC = b"PENSTK01"
_ADVICE = "Restore it from a copy of the job's folder, or start from scratch with fresh=True (--fresh)"
UNSEALED = ".new"
"""The suffix of a file that is being written."""


def write_sealed(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Write a new sealed file; raises JobFailedError if the disk is full or fails.

    With ``synced`` the file is synced to the disk. It gets its name only when it is complete, because a
    snapshot may be taken while an abandoned task still writes.
    """
    write_new(path, _HEADER.pack(_MAGIC, len(data), zlib.crc32(data)), data, synced=synced)


def write_new(path: Path, *parts: bytes, synced: bool = False) -> None:
    """Write a new file as a whole; raises JobFailedError if the disk is full or fails."""
    unsealed = path.with_name(f"{path.name}{UNSEALED}")
    try:
        descriptor = os.open(unsealed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
            if synced:
                file.flush()
                os.fsync(descriptor)
        unsealed.rename(path)
        if synced:
            sync(path.parent)
    except OSError as error:
        unsealed.unlink(missing_ok=True)
        raise write_error(path, error) from error


def read_sealed(path: Path) -> bytes:
    """Return the data of a sealed file; raises JobFailedError if it is missing, truncated or altered."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise missing_error(path) from None
    if len(content) < _HEADER.size:
        raise damage_error(path, "it ends within its header")
    magic, length, checksum = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    if magic != _MAGIC:
        raise damage_error(path, "its header is not one of Penstock's")
    if len(data) != length:
        raise damage_error(path, f"{len(data)} bytes of {length}")
    if zlib.crc32(data) != checksum:
        raise damage_error(path, "its checksum does not match")
    return data


def write_error(path: Path, error: OSError) -> JobFailedError:
    """Return the error of a file that cannot be written."""
    return JobFailedError(
        f"{path} cannot be written: {error.strerror}. The batch was not committed. Free or repair the "
        "disk, then start the job again"
    )


def missing_error(path: Path) -> JobFailedError:
    """Return the error of a file that should be there."""
    return JobFailedError(f"{path} is missing: the job's folder has been altered. {_ADVICE}")


def damage_error(path: Path, reason: str) -> JobFailedError:
    """Return the error of a file that is truncated or altered."""
    return JobFailedError(f"{path} is damaged: {reason}. {_ADVICE}")
