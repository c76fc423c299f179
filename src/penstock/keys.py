"""Where a key belongs: a hash that is the same in every process, on every machine, for ever.

Python's own ``hash`` of a string differs from process to process, and the pickle of an object depends on
more than on what makes it equal to another, so keyed state and log partitions cannot be placed by either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any
from uuid import UUID
from zlib import crc32

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio: neighbouring integers land far apart
_NOT_A_NUMBER = 0x7FF80000


def key_hash(key: Any) -> int:
    """Hash a key to 32 bits; keys that are equal in Python have equal hashes.

    A class of one's own is a key if it is an enum or a frozen dataclass, or if it has a method
    ``__penstock_key__`` that returns something that is. Anything else raises TypeError.

    >>> key_hash("a") == key_hash("a"), key_hash(1) == key_hash(1.0) == key_hash(True)
    (True, True)
    """
    if type(key) is str:
        return crc32(key.encode("utf-8", "surrogatepass"))
    if key is None:
        return 0
    if type(key) is int:
        return _spread(hash(key))
    for kind, hash_of in _KINDS:
        if isinstance(key, kind):
            return hash_of(key)
    if hasattr(key, "__penstock_key__"):
        return key_hash(key.__penstock_key__())
    if is_dataclass(key):
        compared = tuple(getattr(key, field.name) for field in fields(key) if field.compare)
        return key_hash((type(key).__qualname__, *compared))
    if hasattr(key, "dtype") and hasattr(key, "item"):
        return key_hash(key.item())
    raise TypeError(
        f"a {type(key).__name__} cannot be a key: make it a string, a number, a date, a tuple of such, an "
        "enum or a frozen dataclass, or give it a method __penstock_key__ that returns one of them"
    )


def _spread(number: int) -> int:
    mixed = (number * _SPREAD) & _MASK
    return mixed ^ (mixed >> 16)


def _of_number(key: Any) -> int:
    # CPython defines the hash of a number by its value alone; only a NaN is hashed by identity.
    return _spread(hash(key)) if key == key else _NOT_A_NUMBER  # noqa: PLR0124


def _of_string(key: str) -> int:
    return crc32(str.__str__(key).encode("utf-8", "surrogatepass"))


def _of_datetime(key: datetime) -> int:
    moment = key if key.utcoffset() is None else key.astimezone(UTC)
    return crc32(moment.replace(fold=0).isoformat().encode())


def _of_sequence(key: Iterable[Any]) -> int:
    mixed = 0
    for part in key:
        mixed = ((mixed * 1000003 + 1) ^ key_hash(part)) & _MASK
    return mixed


def _of_set(key: Iterable[Any]) -> int:
    return sum(map(key_hash, key)) & _MASK


def _of_mapping(key: Mapping[Any, Any]) -> int:
    return _of_set(key.items())


_KINDS: tuple[tuple[Any, Callable[[Any], int]], ...] = (
    (str, _of_string),
    (Number, _of_number),
    (bytes, crc32),
    (tuple, _of_sequence),
    (Enum, lambda key: key_hash((type(key).__qualname__, key.name))),
    (datetime, _of_datetime),
    (date | time | timedelta | UUID | PurePath, lambda key: crc32(repr(key).encode())),
    (list, _of_sequence),
    (Set, _of_set),
    (Mapping, _of_mapping),
)
"""In this order: a string enum is a string, and a datetime is a date."""
