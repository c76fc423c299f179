"""A stable hash of keys, which decides their bucket or partition: equal in all processes on all machines.

Python's ``hash`` of a string differs between processes, and equal objects can have different pickles, so
neither can assign keyed state to buckets or records to partitions of a log.
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
_MIX_FACTOR = 0x9E3779B1  # 2**32 / golden ratio: spreads neighbouring integers

VERSION = 3
"""The version of the hash. State that another version assigned to buckets is repartitioned at the next start.

Version 1 gave different hashes to some equal keys: paths, times with an offset, subclasses of dates, NumPy
dates of different units. Version 2 did so for times in the repeated hour of a clock change, and for equal
dates and durations of NumPy and Python; it also accepted keys with a custom equality that it could not hash.
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
    """A key that is not equal to itself, such as NaN: its state would never be found again."""


def key_hash(key: Any) -> int:
    """Return the 32-bit hash of a key; keys that are equal in Python have equal hashes.

    An object of a user-defined class can be a key if the class is an enum or a frozen dataclass, or defines
    ``__eq__`` and a method ``__penstock_key__`` that returns a key, the same one for equal objects. Raises
    TypeError for anything else, and for NaN, which is not equal to itself.

    >>> key_hash("a") == key_hash("a"), key_hash(1) == key_hash(1.0) == key_hash(True)
    (True, True)
    """
    if type(key) is str:
        return crc32(key.encode("utf-8", "surrogatepass"))
    if key is None:
        return 0
    if type(key) is int:
        return _mix_bits(hash(key))
    hash_of = _hash_functions.get(type(key))
    if hash_of is None:
        hash_of = _cache_hash_function(type(key))
    return hash_of(key)


def _mix_bits(number: int) -> int:
    mixed = (number * _MIX_FACTOR) & _MASK
    return mixed ^ (mixed >> 16)


def _hash_number(key: Any) -> int:
    # CPython hashes a number by its value alone; only NaN is hashed by identity.
    try:
        equal = key == key  # noqa: PLR0124
    except ArithmeticError:  # Comparing a signaling NaN of Decimal raises.
        equal = False
    if not equal:
        raise _unequal_key_error(key)
    return _mix_bits(hash(key))


def _unequal_key_error(key: Any) -> UnequalKeyError:
    return UnequalKeyError(
        f"{key!r} cannot be a key or a part of one: it is not equal to itself, so its state would never be"
        " found again"
    )


def _hash_numpy_datetime(key: Any) -> int:
    """Hash a NumPy datetime, which can equal one in another unit and a datetime without an offset."""
    return _hash_microseconds(_microseconds(key), "")


def _hash_pandas_datetime(key: Any) -> int:
    if key != key:  # noqa: PLR0124
        raise _unequal_key_error(key)
    moment = key.replace(fold=0) if key.fold else key
    zone = "" if moment.utcoffset() is None else "+00:00"
    return _hash_microseconds(_microseconds(moment.to_datetime64()), zone)


def _hash_microseconds(number: int, zone: str) -> int:
    try:
        return _hash_iso_text(_EPOCH + timedelta(microseconds=number), zone)
    except OverflowError:  # NumPy and pandas support years that Python does not.
        return _mix_bits(hash(number))


def _hash_numpy_duration(key: Any) -> int:
    """Hash a NumPy duration, which can equal one in another unit and a timedelta."""
    import numpy as np

    unit, count = np.datetime_data(key.dtype)
    if unit == "generic" and not np.isnat(key):
        raise TypeError(f"{key!r} cannot be a key: it has no unit, so it equals durations of every unit")
    if unit in ("Y", "M"):  # Years and months have no fixed length in days.
        return _hash_sequence(("M", int(key.astype(np.int64)) * count * (12 if unit == "Y" else 1)))
    number = _microseconds(key)
    try:
        return _hash_repr(timedelta(microseconds=number))
    except OverflowError:
        return _mix_bits(hash(number))


def _microseconds(key: Any) -> int:
    """Return the whole microseconds of a NumPy datetime or duration: Python's own are no finer."""
    import numpy as np

    if np.isnat(key):
        raise _unequal_key_error(key)
    unit, count = np.datetime_data(key.dtype)
    if unit not in _ATTOSECONDS:
        key, unit, count = key.astype("datetime64[D]"), "D", 1
    number: int = int(key.astype(np.int64)) * count * _ATTOSECONDS[unit] // _ATTOSECONDS["us"]
    return number


def _hash_string(key: str) -> int:
    return crc32(str.__str__(key).encode("utf-8", "surrogatepass"))


def _hash_datetime(key: datetime) -> int:
    # Python compares and hashes times of one zone without regard to fold, the repeated hour.
    moment = key.replace(fold=0) if key.fold else key
    offset = moment.utcoffset()
    shown = datetime(
        *(moment.year, moment.month, moment.day),
        *(moment.hour, moment.minute, moment.second, moment.microsecond),
    )
    if offset is None:
        return _hash_iso_text(shown, "")
    try:
        return _hash_iso_text(shown - offset, "+00:00")
    except OverflowError:  # Within a day of the earliest or latest datetime.
        return _hash_repr(shown - _EPOCH - offset)


def _hash_iso_text(moment: datetime, zone: str) -> int:
    return crc32(f"{moment.isoformat()}{zone}".encode())


def _hash_time(key: time) -> int:
    offset = (key.replace(fold=0) if key.fold else key).utcoffset()
    if offset is None:
        return _hash_repr(time(key.hour, key.minute, key.second, key.microsecond))
    since_midnight = timedelta(0, key.second, key.microsecond, 0, key.minute, key.hour)
    return _hash_repr(since_midnight - offset)


def _hash_path(key: PurePath) -> int:
    if isinstance(key, PureWindowsPath):
        return crc32(f"WindowsPath({str(key).lower()!r})".encode("utf-8", "surrogatepass"))
    return crc32(f"PosixPath({str(key)!r})".encode("utf-8", "surrogatepass"))


def _hash_repr(key: Any) -> int:
    """Hash the repr of a value whose type is not a subclass."""
    return crc32(repr(key).encode())


def _hash_sequence(key: Iterable[Any]) -> int:
    mixed = 0
    for part in key:
        mixed = ((mixed * 1000003 + 1) ^ key_hash(part)) & _MASK
    return mixed


def _hash_set(key: Iterable[Any]) -> int:
    return sum(map(key_hash, key)) & _MASK


def _hash_mapping(key: Mapping[Any, Any]) -> int:
    return _hash_set(key.items())


_hash_functions: dict[type, Hash] = {bytes: crc32, tuple: _hash_sequence}
"""Hash functions by type of key."""
_MAX_CACHED_TYPES = 1000
"""Bounds the cache, because a job can create any number of classes while it runs."""


def _cache_hash_function(kind: type) -> Hash:
    """Find and cache the hash function of a type; raises TypeError if its instances cannot be keys."""
    hash_of = _find_hash_function(kind)
    if len(_hash_functions) >= _MAX_CACHED_TYPES:
        _hash_functions.clear()
    _hash_functions[kind] = hash_of
    return hash_of


def _find_hash_function(kind: type) -> Hash:
    equality: Any = kind.__eq__
    by_identity = equality is object.__eq__
    if by_identity and not issubclass(kind, Enum):
        raise _identity_equality_error(kind)
    if hasattr(kind, "__penstock_key__"):
        return lambda key: key_hash(key.__penstock_key__())
    libraries = _library_hash_function(kind)
    if libraries is not None:
        return libraries
    for base, hash_of in _CLASS_HASHES:
        if issubclass(kind, base):
            if _redefines_equality(kind, base):
                raise _custom_equality_error(kind)
            return hash_of
    if by_identity:  # Each process has exactly one object for each member of an enum.
        name = kind.__qualname__
        return lambda key: key_hash((name, key.name))
    compared = _compared_fields(kind)
    if compared is not None:
        name = kind.__qualname__
        return lambda key: key_hash((name, *[getattr(key, field) for field in compared]))
    for base, hash_of in _PROTOCOL_HASHES:
        if issubclass(kind, base):
            if any(_redefines_equality(kind, one, {"__eq__"}) for one in (list, set, dict)):
                raise _custom_equality_error(kind)
            return hash_of
    if issubclass(kind, Enum) or hasattr(kind, "__dataclass_fields__"):
        raise _custom_equality_error(kind)
    raise TypeError(
        f"a {kind.__name__} cannot be a key: make it a string, a number, a date, a tuple of such, an "
        "enum or a frozen dataclass, or give it a method __penstock_key__ that returns one of them"
    )


def _identity_equality_error(kind: type) -> TypeError:
    return TypeError(
        f"a {kind.__name__} cannot be a key: two of them are equal only if they are the same object, and a"
        " key that is sent or stored comes back as a new object. Make it a frozen dataclass (without"
        " eq=False), or give it __eq__, __hash__ and a method __penstock_key__ that returns a string, a"
        " number or a tuple of such"
    )


def _custom_equality_error(kind: type) -> TypeError:
    return TypeError(
        f"a {kind.__name__} cannot be a key: it defines __eq__ or __hash__, so Penstock cannot know which"
        " keys are equal to it. Give it a method __penstock_key__ that returns a string, a number"
        " or a tuple of such, the same for all equal keys"
    )


def _library_hash_function(kind: type) -> Hash | None:
    """Return the hash function for a type of NumPy or pandas; None for other types. Imports neither."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and issubclass(kind, numpy.generic):
        if issubclass(kind, numpy.datetime64):
            return _hash_numpy_datetime
        if issubclass(kind, numpy.timedelta64):  # NumPy registers it as a number as well.
            return _hash_numpy_duration
        if not issubclass(kind, str | bytes | numpy.number):
            return lambda key: key_hash(key.item())
    if pandas is not None:
        if issubclass(kind, pandas.Timestamp | type(pandas.NaT)):
            return _hash_pandas_datetime
        if issubclass(kind, pandas.Timedelta):
            return lambda key: _hash_numpy_duration(key.to_timedelta64())
    return None


_CLASS_HASHES: tuple[tuple[type, Hash], ...] = (
    (str, _hash_string),
    *((number, _hash_number) for number in (int, float, complex, Decimal, Fraction)),
    (bytes, crc32),
    (tuple, lambda key: _hash_sequence(tuple.__iter__(key))),
    (datetime, _hash_datetime),
    (date, lambda key: _hash_repr(date(key.year, key.month, key.day))),
    (time, _hash_time),
    (timedelta, lambda key: _hash_repr(timedelta(key.days, key.seconds, key.microseconds))),
    (UUID, lambda key: _hash_repr(UUID(int=key.int))),
    (PurePath, _hash_path),
    (frozenset, _hash_set),
)
"""Hash functions of classes with known equality, also for subclasses that do not redefine it. The order
matters: datetime is a subclass of date."""

_PROTOCOL_HASHES: tuple[tuple[Any, Hash], ...] = (
    (Complex, _hash_number),
    (list, _hash_sequence),
    (Set, _hash_set),
    (Mapping, _hash_mapping),
)
"""Hash functions of abstract types, whose instances are equal if their content is. Python requires equal
numbers of any class to have the same ``hash``."""

_TRUSTED_PACKAGES = frozenset({*sys.stdlib_module_names, "numpy", "pandas", "pendulum"})
"""Packages whose subclasses keep the equality of their base classes."""


def _redefines_equality(kind: type, base: type, by: Set[str] = frozenset({"__eq__", "__hash__"})) -> bool:
    """Return whether a subclass defines an equality other than that of its base."""
    if base not in kind.__mro__:
        return False
    between = kind.__mro__[: kind.__mro__.index(base)]
    return any(
        one.__module__.partition(".")[0] not in _TRUSTED_PACKAGES and by & vars(one).keys() for one in between
    )


def _compared_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields that the generated ``__eq__`` of a dataclass compares; None if it has its own."""
    [definer] = [one for one in kind.__mro__ if "__eq__" in vars(one)][:1]
    if "__dataclass_fields__" not in vars(definer):
        return None
    # dataclass() keeps an existing __eq__ and does not mark a generated one, so compare the byte code.
    alike: Any = make_dataclass(
        "Alike", [(one.name, object, field(compare=one.compare)) for one in fields(definer)]
    )
    made, found = alike.__eq__.__code__, getattr(definer.__eq__, "__code__", None)
    if found is None or (found.co_code, found.co_names) != (made.co_code, made.co_names):
        return None
    return tuple(one.name for one in fields(definer) if one.compare)
