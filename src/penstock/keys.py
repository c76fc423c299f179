"""Where a key belongs: a hash that is the same in every process, on every machine, for ever.

Python's own ``hash`` of a string differs from process to process, so keyed state and log partitions
cannot be placed by it.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from numbers import Number
from zlib import crc32

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio: neighbouring integers land far apart


def key_hash(key: Hashable) -> int:
    """Hash a key to 32 bits; keys that are equal in Python have equal hashes.

    >>> key_hash("a") == key_hash("a"), key_hash(1) == key_hash(1.0) == key_hash(True)
    (True, True)
    """
    if type(key) is str:
        return crc32(key.encode("utf-8", "surrogatepass"))
    if key is None:
        return 0
    if isinstance(key, Number):
        # Decimal and Fraction among them: CPython defines the hash of numbers by their value alone.
        mixed = (hash(key) * _SPREAD) & _MASK
        return mixed ^ (mixed >> 16)
    if isinstance(key, str):
        return crc32(str(key).encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, tuple):
        mixed = len(key)
        for part in key:
            mixed = ((mixed * 1000003) ^ key_hash(part)) & _MASK
        return mixed
    if isinstance(key, frozenset):
        return sum(map(key_hash, key)) & _MASK
    return crc32(pickle.dumps(key, protocol=5))
