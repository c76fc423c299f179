"""The transfer format of snapshots over the network.

Compressed JSON, and packs of small objects in one body, because one request for each of thousands of small
files would be slow. Used by client and server.
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
    """Encode a value as JSON, compressed at the fastest level."""
    return zlib.compress(json.dumps(content).encode(), 1)


def decompress_json(data: bytes, limit: int) -> bytes:
    """Decompress JSON. Raises ValueError if it is larger than ``limit`` bytes or not deflate data.

    >>> decompress_json(compress_json([1, 2]), 6), len(decompress_json(compress_json("x" * 100), 102))
    (b'[1, 2]', 102)
    """
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(f"the data is not compressed by deflate: {error}") from None
    if not unpacking.eof:
        raise ValueError(f"the data is larger than {limit} bytes, or cut off")
    return whole


SMALL = 256 << 10
"""Objects up to this size are sent in packs."""
MOST_PACK = 2 << 20
"""Maximum size of the objects in a pack."""
MOST_BODY = MOST_PACK + SMALL + (1 << 20)
"""Maximum size of a body: the objects, and the header line before each."""
MOST_OBJECTS = 5_000
"""Maximum number of objects in a pack."""
_MAX_LINE = 200


@dataclass(frozen=True)
class Frame:
    """An object in a pack."""

    sha256: str
    data: bytes


def packs(pieces: Iterable[SnapshotFile]) -> Iterator[list[SnapshotFile]]:
    """Divide small objects into packs.

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
    """Encode one object.

    >>> frame("ab" * 32, b"xyz").partition(b"\\n")[2]
    b'xyz'
    """
    return json.dumps({"sha256": sha256, "size": len(data)}).encode() + b"\n" + data


def frames(body: BinaryIO) -> Iterator[Frame]:
    """Decode the objects of a body; raise SnapshotDamagedError for a truncated or invalid object.

    >>> import io
    >>> body = frame("ab" * 32, b"xyz") + frame("cd" * 32, b"")
    >>> [(each.sha256[:2], each.data) for each in frames(io.BytesIO(body))]
    [('ab', b'xyz'), ('cd', b'')]
    """
    while line := body.readline(_MAX_LINE + 1):
        sha256, size = _header(line)
        data = body.read(size)
        if len(data) < size:
            raise SnapshotDamagedError(f"the object {sha256} is cut off: {len(data)} bytes of {size}")
        yield Frame(sha256, data)


def _header(line: bytes) -> tuple[str, int]:
    try:
        content = json.loads(line if len(line) <= _MAX_LINE else b"")
        sha256, size = content["sha256"], content["size"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise SnapshotDamagedError("an object in a pack has no valid header line") from None
    if not is_sha256(sha256) or type(size) is not int or not 0 <= size <= SMALL:
        raise SnapshotDamagedError(f"an object in a pack must have a SHA-256 and at most {SMALL} bytes")
    return sha256, size
