"""JSON as it goes over the network: a manifest has a third of its size then."""

from __future__ import annotations

import json
import zlib


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
