"""Order-independent digests of records and states, equal on every machine.

Replicas of a job use them to compare their output and their state. A digest is a sum over the records, so it
depends neither on their order nor on how they were divided among tasks. Each record is hashed by value:
``marshal`` serializes plain values quickly and independently of object identity; other values are first
converted to plain ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain, repeat
from marshal import dumps
from operator import mul
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from zlib import crc32

_MODULUS = 1 << 64
_CHAIN_FACTOR = (
    0x9E3779B97F4A7C15  # 2**64 / golden ratio; odd, so that the chain keeps the digest of every batch
)
_VERSION = 2
"""The last version of marshal's format that writes repeated objects in full instead of as references."""

_ATOMS = frozenset({str, int, float, bool, bytes, complex, type(None)})
_CONTAINERS = frozenset({tuple, list, dict, set, frozenset})
_PLAIN = _ATOMS | _CONTAINERS
_MAX_DEPTH = 32
"""Values nested deeper than this, or recursively, are not treated as plain."""
_MAX_CACHED_TYPES = 1000


def digest(items: Iterable[tuple[Any, ...]]) -> int:
    """Return the digest of records, or of any tuples, independent of their order.

    >>> digest([("a", 1, None), ("b", 2, None)]) == digest([("b", 2, None), ("a", 1, None)])
    True
    >>> digest([("a", 1, None), ("b", 2, None)]) == digest([("a", 2, None), ("b", 1, None)])
    False
    """
    rows = items if isinstance(items, list) else list(items)
    if _are_plain(list(chain.from_iterable(rows))):
        checksums = list(map(crc32, map(dumps, map(tuple, rows), repeat(_VERSION))))
    else:
        checksums = [crc32(_serialized(row)) for row in rows]
    # A plain sum of checksums would miss some exchanges between two records; a sum of squares does not.
    return int(sum(map(mul, checksums, checksums)) % _MODULUS)


def add_digests(mine: dict[str, int], theirs: Mapping[str, int]) -> None:
    """Add digests to those of the same names."""
    for name, number in theirs.items():
        mine[name] = (mine.get(name, 0) + number) % _MODULUS


def chained_digests(before: Mapping[str, int], batch: Mapping[str, int]) -> dict[str, int]:
    """Return the digests of all batches so far: those before the newest batch, combined with those of it.

    >>> chained_digests({"count": 1}, {"count": 2}) == chained_digests({"count": 2}, {"count": 1})
    False
    """
    return {
        name: (before.get(name, 0) * _CHAIN_FACTOR + batch.get(name, 0)) % _MODULUS
        for name in sorted({*before, *batch})
    }


def _are_plain(level: list[Any]) -> bool:
    """Return whether values, including nested ones, are of Python's plain types.

    Only these may be passed to marshal: it writes any object with a buffer as bytes, and the bytes of an
    array of objects are addresses.
    """
    for _ in range(_MAX_DEPTH):
        kinds = set(map(type, level))
        if not kinds <= _PLAIN:
            return False
        if kinds <= _ATOMS:
            return True
        inner: list[Any] = []
        for kind in kinds & _CONTAINERS:
            those: list[Any] = [value for value in level if type(value) is kind]
            inner += chain.from_iterable(those)
            if kind is dict:
                inner += chain.from_iterable(map(dict.values, those))
        level = inner
    return False


def _serialized(row: tuple[Any, ...]) -> bytes:
    try:
        return dumps(tuple(map(_plain_form, row)), _VERSION)
    except (RecursionError, ValueError):  # It contains itself, so it cannot be serialized.
        return dumps(tuple(type(value).__qualname__ for value in row), _VERSION)


def _plain_form(value: Any) -> Any:
    """Return the plain form of a value: the value itself if all of it is plain."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    form = _form_functions.get(kind)
    if form is None:
        if len(_form_functions) >= _MAX_CACHED_TYPES:
            _form_functions.clear()
            _form_functions.update(_CONTAINER_FORMS)
        form = _form_functions[kind] = _find_form_function(kind)
    return form(value)


def _tuple_form(value: tuple[Any, ...]) -> Any:
    return tuple(map(_plain_form, value))


def _list_form(value: list[Any]) -> Any:
    return list(map(_plain_form, value))


def _dict_form(value: dict[Any, Any]) -> Any:
    pairs = [(_plain_form(key), _plain_form(its)) for key, its in value.items()]
    try:
        found = dict(pairs)
    except TypeError:
        return "dict", pairs
    return found if len(found) == len(pairs) else ("dict", pairs)


def _set_form(value: set[Any] | frozenset[Any]) -> Any:
    members = list(map(_plain_form, value))
    try:
        found = type(value)(members)
    except TypeError:
        found = frozenset()
    if len(found) == len(members):
        return found
    return type(value).__name__, sorted(dumps(member, _VERSION) for member in members)


_CONTAINER_FORMS: dict[type, Callable[[Any], Any]] = {
    tuple: _tuple_form,
    list: _list_form,
    dict: _dict_form,
    set: _set_form,
    frozenset: _set_form,
}
_form_functions = dict(_CONTAINER_FORMS)
"""Functions that return the plain form of an instance, by type."""

_BASE_VALUES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__pos__),
    (bytes, bytes),
    (bytearray, bytes),
    (memoryview, bytes),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (list, lambda value: list(list.__iter__(value))),
    (dict, lambda value: dict(dict.items(value))),
    (frozenset, frozenset),
    (set, set),
)
"""Functions that return the plain value of an instance of a subclass, by base class."""

_NAMED_TYPES = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def _find_form_function(kind: type) -> Callable[[Any], Any]:
    """Return the function that returns the plain form of an instance of a class."""
    name = kind.__qualname__
    if issubclass(kind, Enum):
        return lambda value: (name, value.name or _plain_form(value.value))
    if is_dataclass(kind):
        # Only its fields: other attributes, such as cached properties, may be missing.
        names = [field.name for field in fields(kind)]
        return lambda value: (name, *[_plain_form(getattr(value, field, None)) for field in names])
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray | numpy.generic):
        return _array_form
    for base, plain in _BASE_VALUES:
        if issubclass(kind, base):
            return lambda value: (
                name,
                _plain_form(plain(value)),
                _plain_form(getattr(value, "__dict__", None)),
            )
    if issubclass(kind, _NAMED_TYPES):
        return lambda value: (name, getattr(value, "__qualname__", value.__name__))
    return _instance_form


def _array_form(value: Any) -> Any:
    content = _plain_form(value.tolist()) if value.dtype.hasobject else value.tobytes()
    return type(value).__qualname__, value.dtype.str, value.shape, content


def _instance_form(value: Any) -> Any:
    """Return the plain form of an instance from its parts, as pickle and copy determine them."""
    name = type(value).__qualname__
    try:
        reduced = value.__reduce_ex__(4)
    except RecursionError:
        raise
    except Exception:
        return (name,)
    if isinstance(reduced, str):
        return name, reduced
    _, arguments, state, items, pairs = (*reduced, None, None, None, None)[:5]
    listed = [None if some is None else list(some) for some in (items, pairs)]
    return name, _plain_form(arguments), _plain_form(state), _plain_form(listed)
