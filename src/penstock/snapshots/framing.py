"""Several small objects in one body: of each a line that says which it is, then its bytes.

Thousands of small files would otherwise be thousands of requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from penstock.snapshots.errors import SnapshotDamagedError
from penstock.snapshots.manifest import SnapshotFile, is_sha256

SMALL = 256 << 10
"""An object up to this size goes together with others."""
MOST_PACK = 2 << 20
"""What they may have together."""
MOST_BODY = MOST_PACK + SMALL + (1 << 20)
"""What a body may have at most: the objects, and the lines before them."""
MOST_OBJECTS = 5_000
"""In one body."""
_LINE = 200


class Readable(Protocol):
    """What frames are read from."""

    def readline(self, limit: int = -1, /) -> bytes: ...

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class Frame:
    """One object."""

    sha256: str
    data: bytes


def packs(pieces: Iterable[SnapshotFile]) -> Iterator[list[SnapshotFile]]:
    """Divide small objects into what goes into one body each.

    >>> many = [Piece(str(number), "ab" * 32, 200_000) for number in range(25)]
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


def frames(body: Readable) -> Iterator[Frame]:
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
