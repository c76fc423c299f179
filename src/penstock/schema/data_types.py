"""The types of schema fields: which values fit them, and which types are compatible."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from penstock.errors import shown

Rebuild = Callable[[Any], Any]
"""Converts a value read from a column to the user's type."""

INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_EXACT = {"float": 1 << 24, "double": 1 << 53}
"""The limit up to which a floating-point type represents every whole number exactly."""
_DIGITS = {"byte": 3, "short": 5, "int": 10, "long": 19}
_PYTHON: dict[str, type[Any]] = {"string": str, "boolean": bool, "binary": bytes}
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class PlainType:
    """A scalar type: string, boolean, number, binary, date or timestamp."""

    name: str

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return self.name

    def fault(self, value: Any, place: str) -> str | None:
        """Return why a value does not fit, if it does not."""
        return f"{place}: {reason}" if (reason := self._reason(value)) else None

    def _reason(self, value: Any) -> str | None:
        name = self.name
        if name in _PYTHON:
            if not isinstance(value, _PYTHON[name]):
                return _not_a(value, name)
            return _text_reason(value) if name == "string" else None
        if name in INTEGERS:
            if not _is_whole_number(value):
                return _not_a(value, name)
            limit = 1 << (INTEGERS[name] - 1)
            return None if -limit <= value < limit else f"{shown(value)} is out of the range of {name}"
        if name in _EXACT:
            if isinstance(value, float):
                return None
            if not _is_whole_number(value):
                return _not_a(value, name)
            return None if abs(value) <= _EXACT[name] else f"{shown(value)} has no exact {name}"
        if name == "date":
            is_date = isinstance(value, date) and not isinstance(value, datetime)
            return None if is_date else _not_a(value, name)
        return _time_reason(value, name)

    def fits(self, wanted: DataType) -> bool:
        """Return whether every value of this type is one of the wanted type."""
        if self == wanted:
            return True
        if isinstance(wanted, DecimalType):
            return self.name in INTEGERS and _DIGITS[self.name] <= wanted.precision - wanted.scale
        if not isinstance(wanted, PlainType):
            return False
        if self.name in INTEGERS and wanted.name in INTEGERS:
            return INTEGERS[self.name] <= INTEGERS[wanted.name]
        # A floating-point field also accepts whole numbers.
        return (self.name in INTEGERS or self.name == "float") and wanted.name == "double"

    def rebuild(self) -> Rebuild | None:
        """A value comes out of a column as it went in."""
        return None


@dataclass(frozen=True)
class DecimalType:
    """A decimal number with ``precision`` digits, ``scale`` of them after the point."""

    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return f"decimal({self.precision},{self.scale})"

    def fault(self, value: Any, place: str) -> str | None:
        """Return why a value does not fit, if it does not."""
        if _is_whole_number(value):
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            return f"{place}: {_not_a(value, self.ddl)}"
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "finite numbers have an integer exponent"
        text = "".join(map(str, digits)).lstrip("0")
        stripped = text.rstrip("0")
        behind = -(exponent + len(text) - len(stripped)) if stripped else 0
        before = len(stripped) - behind if stripped else 0
        if behind <= self.scale and before <= self.precision - self.scale:
            return None
        return f"{place}: {value} has more digits than {self.ddl}"

    def fits(self, wanted: DataType) -> bool:
        """Return whether every value of this type is one of the wanted type."""
        return (
            isinstance(wanted, DecimalType)
            and self.scale <= wanted.scale
            and self.precision - self.scale <= wanted.precision - wanted.scale
        )

    def rebuild(self) -> Rebuild | None:
        """A value comes out of a column as it went in."""
        return None


@dataclass(frozen=True)
class ArrayType:
    """A list. Its elements may be None."""

    element: DataType

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return f"array<{self.element.ddl}>"

    def fault(self, value: Any, place: str) -> str | None:
        """Return why a value does not fit, if it does not."""
        if not isinstance(value, list | tuple):
            return f"{place}: {_not_a(value, 'list')}"
        for index, item in enumerate(value):
            if item is not None and (reason := self.element.fault(item, f"{place}[{index}]")):
                return reason
        return None

    def fits(self, wanted: DataType) -> bool:
        """Return whether every value of this type is one of the wanted type."""
        return isinstance(wanted, ArrayType) and self.element.fits(wanted.element)

    def rebuild(self) -> Rebuild | None:
        """Return a function that rebuilds the elements; None if they need none."""
        inner = self.element.rebuild()
        if inner is None:
            return None
        return lambda items: [None if item is None else inner(item) for item in items]


@dataclass(frozen=True)
class MapType:
    """A dict. Its values may be None, its keys may not."""

    key: DataType
    value: DataType

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return f"map<{self.key.ddl},{self.value.ddl}>"

    def fault(self, value: Any, place: str) -> str | None:
        """Return why a value does not fit, if it does not."""
        if not isinstance(value, dict):
            return f"{place}: {_not_a(value, 'dict')}"
        for key, item in value.items():
            inside = f"{place}[{shown(key)}]"
            if reason := self.key.fault(key, f"{place}, key {shown(key)}"):
                return reason
            if item is not None and (reason := self.value.fault(item, inside)):
                return reason
        return None

    def fits(self, wanted: DataType) -> bool:
        """Return whether every value of this type is one of the wanted type."""
        return isinstance(wanted, MapType) and self.key.fits(wanted.key) and self.value.fits(wanted.value)

    def rebuild(self) -> Rebuild | None:
        """Return a function that turns pairs into a dict."""
        inner = self.value.rebuild()
        if inner is None:
            return dict
        return lambda pairs: {key: None if item is None else inner(item) for key, item in pairs}


@dataclass(frozen=True)
class Field:
    """One field of a schema or of a struct."""

    name: str
    type: DataType
    nullable: bool = True
    optional: bool = False
    """Whether the field may be missing; a column then holds None."""

    @property
    def ddl(self) -> str:
        """The field in the syntax of a schema."""
        return f"{self._quoted} {self.type.ddl}{self._null}"

    @property
    def inner_ddl(self) -> str:
        """The field in the syntax of a struct."""
        return f"{self._quoted}: {self.type.ddl}{self._null}"

    @property
    def _quoted(self) -> str:
        name = self.name
        return name if _SIMPLE.fullmatch(name) else f"`{name.replace('`', '``')}`"

    @property
    def _null(self) -> str:
        return "" if self.nullable or self.optional else " not null"


@dataclass(frozen=True)
class StructType:
    """Named fields: a dict, or an instance of a dataclass."""

    fields: tuple[Field, ...]
    cls: type | None = None
    """The dataclass of the values; None for dicts."""

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        return f"struct<{', '.join(field.inner_ddl for field in self.fields)}>"

    def fault(self, value: Any, place: str) -> str | None:
        """Return why a value does not fit, if it does not."""
        given = fields_of(value)
        if given is None:
            wanted = self.cls.__name__ if self.cls else "dict"
            return f"{place}: {_not_a(value, wanted)}" if place else _not_a(value, wanted)
        for field in self.fields:
            inside = f"{place}.{field.name}" if place else f"field {field.name!r}"
            if field.name not in given:
                if not field.optional:
                    return f"{inside}: missing"
                continue
            item = given[field.name]
            if item is None:
                if not field.nullable:
                    return f"{inside}: must not be None"
            elif reason := field.type.fault(item, inside):
                return reason
        if len(given) > len(self.fields) or not given.keys() <= {field.name for field in self.fields}:
            known = {field.name for field in self.fields}
            stranger = next(name for name in given if name not in known)
            return f"{place or 'value'}: has a field {shown(stranger)} that is not declared"
        return None

    def fits(self, wanted: DataType) -> bool:
        """Return whether every value of this type is one of the wanted type."""
        return isinstance(wanted, StructType) and not self.mismatches(wanted)

    def mismatches(self, wanted: StructType) -> list[str]:
        """Return why values of this type are not all values of the wanted type."""
        mine = {field.name: field for field in self.fields}
        asked = {field.name for field in wanted.fields}
        found = [f"field {name!r} is not declared there" for name in mine if name not in asked]
        for field in wanted.fields:
            own = mine.get(field.name)
            if own is None:
                if not field.optional:
                    found.append(f"field {field.name!r} is missing")
            elif not own.type.fits(field.type):
                found.append(f"field {field.name!r} is {own.type.ddl}, not {field.type.ddl}")
            elif own.nullable and not field.nullable:
                found.append(f"field {field.name!r} may be None, and must not be")
            elif own.optional and not field.optional:
                found.append(f"field {field.name!r} may be missing, and must not be")
        return found

    def rebuild(self) -> Rebuild | None:
        """Return a function that builds the dataclass or the dict; None if the dict can stay as it is."""
        parts = {field.name: field.type.rebuild() for field in self.fields}
        inner = {name: part for name, part in parts.items() if part is not None}
        dropped = [field.name for field in self.fields if field.optional]
        cls = self.cls
        if not inner and not dropped and cls is None:
            return None

        def rebuild(value: dict[str, Any]) -> Any:
            for name, part in inner.items():
                if value[name] is not None:
                    value[name] = part(value[name])
            for name in dropped:
                if value[name] is None:
                    del value[name]
            return cls(**value) if cls is not None else value

        return rebuild


DataType = PlainType | DecimalType | ArrayType | MapType | StructType


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dict or of an instance of a dataclass; None for any other value."""
    if isinstance(value, dict):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _not_a(value: Any, wanted: str) -> str:
    return f"{shown(value)} is not a {wanted}"


def _text_reason(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{shown(value)} is not text that UTF-8 can encode"
    return None


def _time_reason(value: Any, name: str) -> str | None:
    if not isinstance(value, datetime):
        return _not_a(value, name)
    if name == "timestamp_ntz":
        return None if value.tzinfo is None else f"{value} has a time zone: declare it as timestamp"
    if value.tzinfo is None:
        return f"{value} has no time zone: give it one, or declare the field as timestamp_ntz"
    try:
        value.astimezone(UTC)
    except OverflowError:
        return f"{value} is out of the range of {name}"
    return None
