"""The transfer format of snapshots over the network.

Compressed JSON, and packs of small objects in one body, because one request for each of thousands of small
files would be slow. Both sides use it; it opens no connection.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from penstock.backups.snapshots.snapshot_errors import SnapshotDamagedError
from penstock.backups.snapshots.snapshot_manifest import SnapshotFile, is_sha256


def compress_json(content: object) -> bytes:
    """Pack something, quickly rather than small."""
    return zlib.compress(json.dumps(content).encode(), 1)


def decompress_json(data: bytes, most: int) -> bytes:
    """Unpack it. Raises ValueError when it is more than ``most`` bytes, or was never packed.

    >>> decompress_json(compress_json([1, 2]), 6), len(decompress_json(compress_json("x" * 100), 102))
    (b'[1, 2]', 102)
    """
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(data, most)
    except zlib.error as error:
        raise ValueError(f"this was not packed by deflate: {error}") from None
    if not unpacking.eof:
        raise ValueError(f"this is more than {most} bytes, or cut off")
    return whole


SMALL = 256 << 10
"""An object up to this size goes together with others."""
MOST_PACK = 2 << 20
"""What they may have together."""
MOST_BODY = MOST_PACK + SMALL + (1 << 20)
"""What a body may have at most: the objects, and the lines before them."""
MOST_OBJECTS = 5_000
"""In one body."""
_LINE = 200


@dataclass(frozen=True)
class Frame:
    """One object."""

    sha256: str
    data: bytes


def packs(pieces: Iterable[SnapshotFile]) -> Iterator[list[SnapshotFile]]:
    """Divide small objects into what goes into one body each.

    >>> many = [SnapshotFile(str(number), "ab" * 32, 200_000) for number in range(25)]
    >>> [len(pack) for pack in packs(many)]
    [10, 10, 5]
    """
    pack: list[SnapshotFile] = []
    total = 0
    for piece in pieces:
        if pack and (total + piece.size > MOST_PACK or len(pack) >= MOST_OBJECTS):
            yield pack
            pack, total = [], 0
        pack.append(piece)
        total += piece.size
    if pack:
        yield pack


def frame(sha256: str, data: bytes) -> bytes:
    """Write one object.

    >>> frame("ab" * 32, b"xyz").partition(b"\\n")[2]
    b'xyz'
    """
    return json.dumps({"sha256": sha256, "size": len(data)}).encode() + b"\n" + data


def frames(body: BinaryIO) -> Iterator[Frame]:
    """Read objects until the body ends; one that is cut off, or no object, raises SnapshotDamagedError.

    >>> import io
    >>> body = frame("ab" * 32, b"xyz") + frame("cd" * 32, b"")
    >>> [(each.sha256[:2], each.data) for each in frames(io.BytesIO(body))]
    [('ab', b'xyz'), ('cd', b'')]
    """
    while line := body.readline(_LINE + 1):
        sha256, size = _header(line)
        data = body.read(size)
        if len(data) < size:
            raise SnapshotDamagedError(f"the object {sha256} is cut off: {len(data)} bytes of {size}")
        yield Frame(sha256, data)


def _header(line: bytes) -> tuple[str, int]:
    try:
        content = json.loads(line if len(line) <= _LINE else b"")
        sha256, size = content["sha256"], content["size"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise SnapshotDamagedError("an object has a line before it that says which it is") from None
    if not is_sha256(sha256) or type(size) is not int or not 0 <= size <= SMALL:
        raise SnapshotDamagedError(f"an object in a pack has a SHA-256 and {SMALL} bytes at most")
    return sha256, size
