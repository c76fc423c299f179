"""The schema of files: names and types as Spark writes them, and values made to fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingError
from penstock.graph.wording import shown

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = {"byte": 8, "short": 16, "int": 32, "long": 64}
_SAME = {
    "tinyint": "byte",
    "smallint": "short",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
}
_TYPES = (*_WHOLE, "float", "double", "string", "boolean", "binary", "timestamp", "timestamp_ntz", "date")
_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+)\s*[:\s]\s*(.+?)(\s+not\s+null)?\s*", re.IGNORECASE | re.DOTALL)
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_ARRAY = re.compile(r"array\s*<(.+)>", re.DOTALL)


@dataclass(frozen=True)
class Column:
    """One field of a schema."""

    name: str
    type: str
    nullable: bool = True


def read_schema(owner: str, schema: Any) -> tuple[Column, ...]:
    """Read a schema: text as in Spark, or anything that has such text as its ``ddl``.

    >>> read_schema("FileSource", "user string not null, n bigint")
    (Column(name='user', type='string', nullable=False), Column(name='n', type='long', nullable=True))
    """
    ddl = schema if isinstance(schema, str) else getattr(schema, "ddl", None)
    if not isinstance(ddl, str) or not ddl.strip():
        raise SettingError(
            f"{owner}: schema takes text such as 'user string, amount double', not {shown(schema)}"
        )
    columns = tuple(_read_column(owner, part) for part in _parts(ddl))
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"{owner}: the schema has the field {name!r} more than once")
    return columns


def write_schema(columns: tuple[Column, ...]) -> str:
    """Return the text of a schema, the same however it was written.

    >>> write_schema(read_schema("FileSource", "n BIGINT,  tags array<string> NOT NULL"))
    'n long, tags array<string> not null'
    """
    return ", ".join(
        f"{_quoted(column.name)} {column.type}{'' if column.nullable else ' not null'}" for column in columns
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _parts(ddl: str) -> list[str]:
    """Cut at the commas that are not within a type or a quoted name."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(ddl):
        if letter == "`":
            quoted = not quoted
        elif not quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and depth == 0:
                parts.append(ddl[start:place])
                start = place + 1
    return [*parts, ddl[start:]]


def _read_column(owner: str, part: str) -> Column:
    match = _COLUMN.fullmatch(part)
    if match is None:
        raise SettingError(f"{owner}: {part.strip()!r} in the schema is not a name and a type")
    name = match[1][1:-1].replace("``", "`") if match[1][0] == "`" else match[1]
    return Column(name, _read_type(owner, match[2]), match[3] is None)


def _read_type(owner: str, given: str) -> str:
    plain = given.strip().lower()
    plain = _SAME.get(plain, plain)
    if plain in _TYPES:
        return plain
    if match := _DECIMAL.fullmatch(plain):
        return f"decimal({match[1]},{match[2]})"
    if match := _ARRAY.fullmatch(plain):
        return f"array<{_read_type(owner, match[1])}>"
    raise SettingError(
        f"{owner}: the type {given.strip()!r} is not known: use {', '.join(_TYPES)}, decimal(p,s) or"
        " array<type>"
    )


def typed(value: Any, kind: str) -> Any:
    """Return a value as a type wants it, from text or from JSON; ValueError when it is none of that type.

    >>> typed("7", "long"), typed(3, "double"), typed("true", "boolean"), typed("", "int")
    (7, 3.0, True, None)
    """
    if value is None or (value == "" and kind not in ("string", "binary")):
        return None
    try:
        if match := _ARRAY.fullmatch(kind):
            if not isinstance(value, list):
                raise ValueError
            return [typed(item, match[1]) for item in value]
        if kind in _WHOLE:
            return _to_whole(value, kind)
        convert = _to_decimal if kind.startswith("decimal") else _CONVERT[kind]
        return convert(value)
    except (ValueError, TypeError, ArithmeticError, KeyError):
        raise ValueError(f"{shown(value)} is not a {kind}") from None


def seconds_of(value: Any) -> float | None:
    """Return a time in seconds since the epoch: of a number, an ISO 8601 text, or a date and time (UTC).

    >>> seconds_of("1970-01-01T00:01:00Z"), seconds_of(1.5), seconds_of("90"), seconds_of(None)
    (60.0, 1.5, 90.0, None)
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = _to_seconds_or_moment(value)
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


def _to_seconds_or_moment(value: str) -> float | datetime:
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


def _to_moment(value: Any) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return datetime.fromtimestamp(_to_float(value), UTC)


def _to_naive(value: Any) -> datetime:
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
    "timestamp": _to_moment,
    "timestamp_ntz": _to_naive,
    "date": lambda value: date.fromisoformat(_to_text(value)),
}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a declared one."""
    import pyarrow as pa

    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns])


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a declared one."""
    import pyarrow as pa

    if match := _ARRAY.fullmatch(kind):
        return pa.list_(arrow_type(match[1]))
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    return {
        "byte": pa.int8(),
        "short": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
    }[kind]
