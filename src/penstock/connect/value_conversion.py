"""Converts values between files and schemas.

Text and JSON to declared types, times to seconds, values to JSON text. Values that cannot be converted raise
ValueError with the name of the field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingError, UnstorableValueError, shown
from penstock.schema.arrow_arrays import arrow_type
from penstock.schema.data_types import ArrayType, DataType, DecimalType, Field, MapType, PlainType
from penstock.schema.record_schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(value: Any) -> str:
    """Encode a value as JSON. A tuple is written as a list.

    >>> to_json({"n": [1, 2.5, None]})
    '{"n":[1,2.5,null]}'
    >>> to_json({1: "a"})
    Traceback (most recent call last):
    penstock.errors.UnstorableValueError: not JSON data: the key 1 of an object is not text
    """
    try:
        _check_keys(value)
        text = _encode(value)
        text.encode()
    except RecursionError:
        raise UnstorableValueError("not JSON data: it is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(f"not JSON data: {error}") from None
    return text


def _check_keys(value: Any) -> None:
    """Raise TypeError for keys that are not strings, which the JSON encoder would convert silently."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} of an object is not text")
            if isinstance(item, dict | list | tuple):
                _check_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, dict | list | tuple):
                _check_keys(item)


_WHOLE = {"byte": 8, "short": 16, "int": 32, "long": 64}


def read_schema(owner: str, schema: Any) -> tuple[Field, ...]:
    """Read the fields of a schema: text as in Spark, a dataclass, a TypedDict or a schema.

    >>> [field.ddl for field in read_schema("FileSource", "user string not null, n bigint")]
    ['user string not null', 'n long']
    """
    try:
        return Schema.of(schema).fields
    except SettingError as error:
        raise SettingError(f"{owner}: {error}") from None


def write_schema(fields: tuple[Field, ...]) -> str:
    """Return the canonical text of a schema.

    >>> write_schema(read_schema("FileSource", "n BIGINT,  tags array<string> NOT NULL"))
    'n long, tags array<string> not null'
    """
    return ", ".join(field.ddl for field in fields)


def arrow_schema(fields: tuple[Field, ...]) -> pa.Schema:
    """Return the Arrow schema of fields."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, arrow_type(f.type), nullable=may_be_none(f)) for f in fields])


def may_be_none(field: Field) -> bool:
    """Return whether a field's value may be None."""
    return field.nullable or field.optional


def convert_fields(value: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    """Convert the fields of a value to their declared types; ValueError names the field that fails.

    >>> convert_fields({"n": "7", "more": 1}, read_schema("FileSource", "n long, user string"))
    {'n': 7, 'user': None}
    """
    if not isinstance(value, dict):
        raise ValueError(f"the schema requires an object, not {type(value).__name__}")
    found = {}
    for field in fields:
        try:
            found[field.name] = convert_value(value.get(field.name), field.type)
        except ValueError as error:
            raise ValueError(f"field {field.name!r}: {error}") from None
        if found[field.name] is None and not may_be_none(field):
            raise ValueError(f"field {field.name!r} is missing")
    return found


def convert_value(value: Any, kind: DataType) -> Any:
    """Convert text or a JSON value to a type; ValueError if that is not possible.

    >>> convert_value("7", PlainType("long")), convert_value("true", PlainType("boolean"))
    (7, True)
    >>> convert_value("", PlainType("int")) is None
    True
    """
    name = kind.ddl
    if value is None or (value == "" and name not in ("string", "binary")):
        return None
    try:
        if isinstance(kind, PlainType):
            return _to_whole(value, name) if name in _WHOLE else _CONVERT[name](value)
        if isinstance(kind, DecimalType):
            return _to_decimal(value)
        if isinstance(kind, ArrayType):
            return [convert_value(item, kind.element) for item in _require(list, value)]
        if isinstance(kind, MapType):
            return {
                convert_value(key, kind.key): convert_value(item, kind.value)
                for key, item in _require(dict, value).items()
            }
        return convert_fields(value, kind.fields)
    except (ValueError, TypeError, ArithmeticError, KeyError):
        raise ValueError(f"{shown(value)} is not a {name}") from None


def seconds_of(value: Any) -> float | None:
    """Convert a number, ISO 8601 string, date or datetime (UTC by default) to seconds since the epoch.

    >>> seconds_of("1970-01-01T00:01:00Z"), seconds_of(1.5), seconds_of("90"), seconds_of(None)
    (60.0, 1.5, 90.0, None)
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = _to_seconds_or_datetime(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{shown(value)} is not a time: neither seconds since the epoch nor ISO 8601")


def _to_seconds_or_datetime(value: str) -> float | datetime:
    try:
        return float(value)
    except ValueError:
        return datetime.fromisoformat(value)


def _to_whole(value: Any, kind: str) -> int:
    if type(value) not in (int, str):
        raise ValueError
    number, limit = int(value), 1 << (_WHOLE[kind] - 1)
    if not -limit <= number < limit:
        raise ValueError
    return number


def _require(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError
    return value


def _to_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    return float(value)


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "false": False, "0": False}[_to_text(value).lower()]


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _to_datetime(value: Any) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return datetime.fromtimestamp(_to_float(value), UTC)


def _to_naive_datetime(value: Any) -> datetime:
    moment = datetime.fromisoformat(_to_text(value))
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    return Decimal(str(value))


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "string": _to_text,
    "binary": lambda value: _to_text(value).encode(),
    "float": _to_float,
    "double": _to_float,
    "boolean": _to_boolean,
    "timestamp": _to_datetime,
    "timestamp_ntz": _to_naive_datetime,
    "date": lambda value: date.fromisoformat(_to_text(value)),
}
