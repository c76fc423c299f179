"""Where a key belongs: a hash that is the same in every process, on every machine, for ever.

Python's own ``hash`` of a string differs from process to process, and the pickle of an object depends on
more than on what makes it equal to another, so keyed state and log partitions cannot be placed by either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import field, fields, make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Complex
from pathlib import PurePath, PureWindowsPath
from typing import Any
from uuid import UUID
from zlib import crc32

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio: neighbouring integers land far apart

VERSION = 3
"""Of the hash. State that was dealt out by another version is dealt out again before the job goes on.

Version 1 gave some keys that are equal different hashes: paths, times with an offset, dates of a subclass,
numpy's dates of different units. Version 2 did so with times in the hour that comes twice, and with dates and
durations of numpy's and of Python's; and it let in keys of which nobody can tell what they are equal to.
"""

Hash = Callable[[Any], int]

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
_EPOCH = datetime(1970, 1, 1)


class UnequalKeyError(TypeError):
    """A key that is not equal to itself, such as NaN: what is kept under it would never be found again."""


def key_hash(key: Any) -> int:
    """Hash a key to 32 bits; keys that are equal in Python have equal hashes.

    A class of one's own is a key if it is an enum or a frozen dataclass, or if it has an ``__eq__`` and a
    method ``__penstock_key__`` that returns something that is, the same for all that are equal. Anything else
    raises TypeError, and so does NaN, which is not equal to itself.

    >>> key_hash("a") == key_hash("a"), key_hash(1) == key_hash(1.0) == key_hash(True)
    (True, True)
    """
    if type(key) is str:
        return crc32(key.encode("utf-8", "surrogatepass"))
    if key is None:
        return 0
    if type(key) is int:
        return _spread(hash(key))
    hash_of = _hashes.get(type(key))
    if hash_of is None:
        hash_of = _learn(type(key))
    return hash_of(key)


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


def _of_numpy_moment(key: Any) -> int:
    """Hash a moment of numpy's, which is equal to one in another unit and to a datetime without an offset."""
    return _of_microseconds(_microseconds(key), "")


def _of_pandas_moment(key: Any) -> int:
    if key != key:  # noqa: PLR0124
        raise _unequal(key)
    moment = key.replace(fold=0) if key.fold else key
    zone = "" if moment.utcoffset() is None else "+00:00"
    return _of_microseconds(_microseconds(moment.to_datetime64()), zone)


def _of_microseconds(number: int, zone: str) -> int:
    try:
        return _of_moment(_EPOCH + timedelta(microseconds=number), zone)
    except OverflowError:  # numpy and pandas know years that Python does not.
        return _spread(hash(number))


def _of_numpy_duration(key: Any) -> int:
    """Hash a length of time of numpy's, which is equal to one in another unit and to a timedelta."""
    import numpy as np

    unit, count = np.datetime_data(key.dtype)
    if unit == "generic" and not np.isnat(key):
        raise TypeError(f"{key!r} cannot be a key: it has no unit, so that it is equal to any of its number")
    if unit in ("Y", "M"):  # They have no length in days.
        return _of_sequence(("M", int(key.astype(np.int64)) * count * (12 if unit == "Y" else 1)))
    number = _microseconds(key)
    try:
        return _of_shown(timedelta(microseconds=number))
    except OverflowError:
        return _spread(hash(number))


def _microseconds(key: Any) -> int:
    """Return the whole microseconds of a moment or a duration of numpy's: no other is finer in Python."""
    import numpy as np

    if np.isnat(key):
        raise _unequal(key)
    unit, count = np.datetime_data(key.dtype)
    if unit not in _ATTOSECONDS:
        key, unit, count = key.astype("datetime64[D]"), "D", 1
    number: int = int(key.astype(np.int64)) * count * _ATTOSECONDS[unit] // _ATTOSECONDS["us"]
    return number


def _of_string(key: str) -> int:
    return crc32(str.__str__(key).encode("utf-8", "surrogatepass"))


def _of_datetime(key: datetime) -> int:
    # Times of one zone are compared, and hashed, as if the clock had not been turned back between them.
    moment = key.replace(fold=0) if key.fold else key
    offset = moment.utcoffset()
    shown = datetime(
        *(moment.year, moment.month, moment.day),
        *(moment.hour, moment.minute, moment.second, moment.microsecond),
    )
    if offset is None:
        return _of_moment(shown, "")
    try:
        return _of_moment(shown - offset, "+00:00")
    except OverflowError:  # Within a day of the first or the last moment that there is.
        return _of_shown(shown - _EPOCH - offset)


def _of_moment(moment: datetime, zone: str) -> int:
    return crc32(f"{moment.isoformat()}{zone}".encode())


def _of_time(key: time) -> int:
    offset = (key.replace(fold=0) if key.fold else key).utcoffset()
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


_hashes: dict[type, Hash] = {bytes: crc32, tuple: _of_sequence}
"""By type, how to hash a key of it."""
_MOST_HASHES = 1000
"""Of classes that are made while a job runs there may be any number."""


def _learn(kind: type) -> Hash:
    """Find out how to hash keys of a type, once for all of them; raises TypeError when it cannot be a key."""
    hash_of = _hash_for(kind)
    if len(_hashes) >= _MOST_HASHES:
        _hashes.clear()
    _hashes[kind] = hash_of
    return hash_of


def _hash_for(kind: type) -> Hash:
    equality: Any = kind.__eq__
    by_identity = equality is object.__eq__
    if by_identity and not issubclass(kind, Enum):
        raise _without_equality(kind)
    if hasattr(kind, "__penstock_key__"):
        return lambda key: key_hash(key.__penstock_key__())
    libraries = _of_libraries(kind)
    if libraries is not None:
        return libraries
    for base, hash_of in _KINDS:
        if issubclass(kind, base):
            if _redefines_equality(kind, base):
                raise _with_own_equality(kind)
            return hash_of
    if by_identity:  # There is one object of each member of an enum, in every process.
        name = kind.__qualname__
        return lambda key: key_hash((name, key.name))
    compared = _compared_fields(kind)
    if compared is not None:
        name = kind.__qualname__
        return lambda key: key_hash((name, *[getattr(key, field) for field in compared]))
    for base, hash_of in _PROTOCOLS:
        if issubclass(kind, base):
            if any(_redefines_equality(kind, one, {"__eq__"}) for one in (list, set, dict)):
                raise _with_own_equality(kind)
            return hash_of
    if issubclass(kind, Enum) or hasattr(kind, "__dataclass_fields__"):
        raise _with_own_equality(kind)
    raise TypeError(
        f"a {kind.__name__} cannot be a key: make it a string, a number, a date, a tuple of such, an "
        "enum or a frozen dataclass, or give it a method __penstock_key__ that returns one of them"
    )


def _without_equality(kind: type) -> TypeError:
    return TypeError(
        f"a {kind.__name__} cannot be a key: two of them are equal only if they are one object, and a key"
        " that is sent or stored comes back as another one. Make it a frozen dataclass (not with eq=False),"
        " or give it __eq__, __hash__ and a method __penstock_key__ that returns a string, a number or a"
        " tuple of such"
    )


def _with_own_equality(kind: type) -> TypeError:
    return TypeError(
        f"a {kind.__name__} cannot be a key: it has an __eq__ or a __hash__ of its own, so nobody can tell"
        " which other keys it is equal to. Give it a method __penstock_key__ that returns a string, a number"
        " or a tuple of such, the same for all that are equal"
    )


def _of_libraries(kind: type) -> Hash | None:
    """Return how to hash what is numpy's or pandas's; None for all else. A key of theirs has loaded them."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and issubclass(kind, numpy.generic):
        if issubclass(kind, numpy.datetime64):
            return _of_numpy_moment
        if issubclass(kind, numpy.timedelta64):  # It is registered as a number as well.
            return _of_numpy_duration
        if not issubclass(kind, str | bytes | numpy.number):
            return lambda key: key_hash(key.item())
    if pandas is not None:
        if issubclass(kind, pandas.Timestamp | type(pandas.NaT)):
            return _of_pandas_moment
        if issubclass(kind, pandas.Timedelta):
            return lambda key: _of_numpy_duration(key.to_timedelta64())
    return None


_KINDS: tuple[tuple[type, Hash], ...] = (
    (str, _of_string),
    *((number, _of_number) for number in (int, float, complex, Decimal, Fraction)),
    (bytes, crc32),
    (tuple, lambda key: _of_sequence(tuple.__iter__(key))),
    (datetime, _of_datetime),
    (date, lambda key: _of_shown(date(key.year, key.month, key.day))),
    (time, _of_time),
    (timedelta, lambda key: _of_shown(timedelta(key.days, key.seconds, key.microseconds))),
    (UUID, lambda key: _of_shown(UUID(int=key.int))),
    (PurePath, _of_path),
    (frozenset, _of_set),
)
"""Classes whose equality is known, and that of subclasses that do not change it. In this order: a datetime is
a date; and an enum of strings or dates has strings or dates, so that enums come after all of these."""

_PROTOCOLS: tuple[tuple[Any, Hash], ...] = (
    (Complex, _of_number),
    (list, _of_sequence),
    (Set, _of_set),
    (Mapping, _of_mapping),
)
"""Kinds that anybody may make one of, which is equal to others of its kind with the same content. Python asks
of numbers of any class that those that are equal have the same ``hash``."""

_KNOWN = frozenset({*sys.stdlib_module_names, "numpy", "pandas", "pendulum"})
"""Packages whose classes are equal to what the classes that they are made of are equal to."""


def _redefines_equality(kind: type, base: type, by: Set[str] = frozenset({"__eq__", "__hash__"})) -> bool:
    """Whether a subclass of a class may be equal to something else than that is."""
    if base not in kind.__mro__:
        return False
    between = kind.__mro__[: kind.__mro__.index(base)]
    return any(one.__module__.partition(".")[0] not in _KNOWN and by & vars(one).keys() for one in between)


def _compared_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields that make two of a dataclass equal; None where an ``__eq__`` of its own decides."""
    [definer] = [one for one in kind.__mro__ if "__eq__" in vars(one)][:1]
    if "__dataclass_fields__" not in vars(definer):
        return None
    # dataclass() never replaces an __eq__ that is there, and leaves no mark on one that it has made.
    alike: Any = make_dataclass(
        "Alike", [(one.name, object, field(compare=one.compare)) for one in fields(definer)]
    )
    made, found = alike.__eq__.__code__, getattr(definer.__eq__, "__code__", None)
    if found is None or (found.co_code, found.co_names) != (made.co_code, made.co_names):
        return None
    return tuple(one.name for one in fields(definer) if one.compare)
