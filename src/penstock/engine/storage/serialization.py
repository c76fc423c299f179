"""Serialization of Python objects and sealed files, for the job's own folder and workers.

A sealed file has a header with length and checksum, so a torn or altered file is detected. Nothing here is
read by another job.
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

    What is ``lasting`` is read again by another process, in which a class of the user's script would be
    another class: it is refused, because a key of it would never be found again.

    Pickle remembers every string in case it comes again, which costs eight times the writing itself;
    lists of plain values cannot contain themselves, so for them the memory is switched off.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.fast = all(_is_plain(column) for column in columns)
    try:
        pickler.dump(columns)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        # An instance of a class that only the user's script knows: its class must travel with it.
        if lasting:
            raise TypeError(
                "keys and states that are kept must be of classes that can be imported: move the class from"
                " the script that is run into a module beside it"
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
            f"{path} cannot be written: {error.strerror}. The batch was not committed. Free or repair the "
            "disk, then start the job again"
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
