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
from pathlib import PurePath, PureWindowsPath
from typing import Any
from uuid import UUID
from zlib import crc32

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio: neighbouring integers land far apart

VERSION = 2
"""Of the hash. State that was dealt out by another version is dealt out again before the job goes on.

Version 1 gave some keys that are equal different hashes: paths, times with an offset, dates of a subclass,
numpy's dates of different units.
"""

_ATTOSECONDS = {
    "W": 7 * 86_400 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}


class UnequalKeyError(TypeError):
    """A key that is not equal to itself, such as NaN: what is kept under it would never be found again."""


def key_hash(key: Any) -> int:
    """Hash a key to 32 bits; keys that are equal in Python have equal hashes.

    A class of one's own is a key if it is an enum or a frozen dataclass, or if it has a method
    ``__penstock_key__`` that returns something that is. Anything else raises TypeError, and so does NaN,
    which is not equal to itself.

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
        return _of_numpy_time(key) if key.dtype.kind in "mM" else key_hash(key.item())
    raise TypeError(
        f"a {type(key).__name__} cannot be a key: make it a string, a number, a date, a tuple of such, an "
        "enum or a frozen dataclass, or give it a method __penstock_key__ that returns one of them"
    )


def _spread(number: int) -> int:
    mixed = (number * _SPREAD) & _MASK
    return mixed ^ (mixed >> 16)


def _of_number(key: Any) -> int:
    # CPython defines the hash of a number by its value alone; only a NaN is hashed by identity.
    try:
        equal = key == key  # noqa: PLR0124
    except ArithmeticError:  # Decimal has a NaN that may not even be compared.
        equal = False
    if not equal:
        raise _unequal(key)
    return _spread(hash(key))


def _unequal(key: Any) -> UnequalKeyError:
    return UnequalKeyError(
        f"{key!r} cannot be a key or a part of one: it is not equal to itself, so what is kept under it"
        " would never be found again"
    )


def _of_numpy_time(key: Any) -> int:
    """Hash a moment or a length of time of numpy's, which is equal to one in another unit."""
    import numpy as np

    if np.isnat(key):
        raise _unequal(key)
    unit, count = np.datetime_data(key.dtype)
    if unit not in _ATTOSECONDS:
        if key.dtype.kind == "m":  # Years and months have no length, and numbers without a unit none either.
            return _of_sequence((unit, int(key.astype(np.int64)) * count))
        key, unit, count = key.astype("datetime64[D]"), "D", 1
    return _spread(hash(int(key.astype(np.int64)) * count * _ATTOSECONDS[unit]))


def _of_string(key: str) -> int:
    return crc32(str.__str__(key).encode("utf-8", "surrogatepass"))


def _of_datetime(key: datetime) -> int:
    moment = key if key.utcoffset() is None else key.astimezone(UTC)
    return crc32(moment.replace(fold=0).isoformat().encode())


def _of_time(key: time) -> int:
    offset = key.utcoffset()
    if offset is None:
        return _of_shown(time(key.hour, key.minute, key.second, key.microsecond))
    since_midnight = timedelta(0, key.second, key.microsecond, 0, key.minute, key.hour)
    return _of_shown(since_midnight - offset)


def _of_path(key: PurePath) -> int:
    if isinstance(key, PureWindowsPath):
        return crc32(f"WindowsPath({str(key).lower()!r})".encode("utf-8", "surrogatepass"))
    return crc32(f"PosixPath({str(key)!r})".encode("utf-8", "surrogatepass"))


def _of_shown(key: Any) -> int:
    """Hash what is shown of a value that is of no subclass."""
    return crc32(repr(key).encode())


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
    (datetime, _of_datetime),
    (date, lambda key: _of_shown(date(key.year, key.month, key.day))),
    (time, _of_time),
    (timedelta, lambda key: _of_shown(timedelta(key.days, key.seconds, key.microseconds))),
    (UUID, lambda key: _of_shown(UUID(int=key.int))),
    (PurePath, _of_path),
    (Enum, lambda key: key_hash((type(key).__qualname__, key.name))),
    (list, _of_sequence),
    (Set, _of_set),
    (Mapping, _of_mapping),
)
"""In this order: a string enum is a string, an enum of dates has dates, and a datetime is a date."""
