"""The schema of a vertex's values, declared as text, a dataclass or a TypedDict; names of key and time."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import SettingError, shown
from penstock.schema.data_types import (
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    PlainType,
    Rebuild,
    StructType,
)
from penstock.schema.ddl_parser import read_fields, read_type

if TYPE_CHECKING:
    pass


KEY, TIME = "_key", "_ts"
"""The names of the columns that hold a record's key and time."""


_PLAIN: dict[Any, DataType] = {
    str: PlainType("string"),
    bool: PlainType("boolean"),
    int: PlainType("long"),
    float: PlainType("double"),
    bytes: PlainType("binary"),
    Decimal: DecimalType(38, 18),
    date: PlainType("date"),
    datetime: PlainType("timestamp"),
}


def read_class(cls: type, outer: tuple[type, ...] = ()) -> StructType:
    """Read a dataclass or a TypedDict; ``Annotated[int, "short"]`` gives the type of a column explicitly."""
    if cls in outer:
        raise SettingError(f"schema {cls.__name__}: it contains itself, which columns cannot represent")
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise SettingError(
            f"schema {cls.__name__}: its annotations cannot be read ({type(error).__name__}: {error})"
        ) from error
    read = _dataclass_fields if dataclasses.is_dataclass(cls) else _typed_dict_fields
    fields = tuple(read(cls, hints, (*outer, cls)))
    if not fields:
        raise SettingError(f"schema {cls.__name__}: it has no fields")
    return StructType(fields, cls if dataclasses.is_dataclass(cls) else None)


def is_record_class(given: Any) -> bool:
    """Return whether a class is a dataclass or a TypedDict, which :func:`read_class` can read."""
    return isinstance(given, type) and (dataclasses.is_dataclass(given) or typing.is_typeddict(given))


def _dataclass_fields(cls: Any, hints: Mapping[str, Any], outer: tuple[type, ...]) -> list[Field]:
    found = []
    for field in dataclasses.fields(cls):
        place = f"{cls.__name__}.{field.name}"
        if not field.init:
            raise SettingError(f"schema {place}: a field with init=False cannot be set")
        kind, nullable = _read(hints[field.name], place, outer)
        found.append(Field(field.name, kind, nullable))
    return found


def _typed_dict_fields(cls: Any, hints: Mapping[str, Any], outer: tuple[type, ...]) -> list[Field]:
    found = []
    for name, given in hints.items():
        hint = given
        optional = name not in cls.__required_keys__
        # In annotations given as text, Required and NotRequired are visible only after evaluation.
        while typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            optional = typing.get_origin(hint) is typing.NotRequired
            hint = typing.get_args(hint)[0]
        kind, nullable = _read(hint, f"{cls.__name__}.{name}", outer)
        found.append(Field(name, kind, nullable, optional))
    return found


def _read(hint: Any, place: str, outer: tuple[type, ...]) -> tuple[DataType, bool]:
    """Return the type of an annotation, and whether it permits None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        named = next((extra for extra in arguments[1:] if isinstance(extra, str)), None)
        kind, nullable = _read(arguments[0], place, outer)
        return (kind if named is None else _named(named, place)), nullable
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return _read(others[0], place, outer)[0], True
        raise SettingError(f"schema {place}: a column has one type, not {_shown(hint)}")
    if hint in _PLAIN:
        return _PLAIN[hint], False
    if origin in (list, Sequence) and len(arguments) == 1:
        return ArrayType(_read(arguments[0], f"{place}[]", outer)[0]), False
    if origin in (dict, Mapping) and len(arguments) == 2:
        key, _ = _read(arguments[0], f"{place}, its keys", outer)
        return MapType(key, _read(arguments[1], f"{place}[]", outer)[0]), False
    if is_record_class(hint):
        return read_class(hint, outer), False
    raise SettingError(
        f"schema {place}: columns cannot hold {_shown(hint)}: use str, bool, int, float, bytes, Decimal,"
        " date, datetime, list[…], dict[…, …], a dataclass or a TypedDict"
    )


def _named(text: str, place: str) -> DataType:
    try:
        return read_type(text)
    except SettingError as error:
        raise SettingError(f"schema {place}: {error}") from None


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else shown(str(hint)).strip("'")


__all__ = ["DataType", "Field", "Schema"]


@dataclass(frozen=True)
class Schema:
    """The fields of a value. Values are dicts, or instances of the dataclass it was made from.

    >>> schema = Schema.of("user string, amount double not null")
    >>> schema.check({"user": "ada", "amount": 3})
    >>> schema.check({"user": "ada", "amount": "3"})
    "field 'amount': '3' is not a double"
    """

    struct: StructType

    @classmethod
    def of(cls, given: Any) -> Schema:
        """Read a schema: text as in Spark, a dataclass, a TypedDict, or a schema.

        Raises :class:`~penstock.errors.SettingError`, which names the position, for anything else.
        """
        if isinstance(given, Schema):
            return given
        if isinstance(given, str):
            struct = StructType(read_fields(given))
        elif is_record_class(given):
            struct = read_class(given)
        else:
            raise SettingError(
                "a schema is text such as 'user string, amount double', a dataclass or a TypedDict,"
                f" not {shown(given)}"
            )
        for field in struct.fields:
            if field.name.lower() in (KEY, TIME):
                raise SettingError(
                    f"a schema has no field {field.name!r}: {KEY} and {TIME} are a record's key and time"
                )
        return Schema(struct)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in order."""
        return self.struct.fields

    @property
    def cls(self) -> type | None:
        """The dataclass of the values; None if they are dicts."""
        return self.struct.cls

    @property
    def ddl(self) -> str:
        """The schema as text; equal schemas have equal text, however they were declared.

        >>> Schema.of("n BIGINT, tags array<string> NOT NULL").ddl
        'n long, tags array<string> not null'
        """
        return ", ".join(field.ddl for field in self.fields)

    def check(self, value: Any) -> str | None:
        """Return why a value does not fit; None if it does."""
        return self.struct.fault(value, "")

    def build(self, fields: dict[str, Any]) -> Any:
        """Return the value with the given fields, as read from columns."""
        return fields if self.rebuild is None else self.rebuild(fields)

    @cached_property
    def rebuild(self) -> Rebuild | None:
        """The function that :meth:`build` applies; None if it would change nothing."""
        return self.struct.rebuild()

    @cached_property
    def positional(self) -> Callable[..., Any] | None:
        """The dataclass if it can be called with the values in order, which is faster than by name."""
        cls: Any = self.cls
        if cls is None or any(field.type.rebuild() is not None for field in self.fields):
            return None
        return None if any(field.kw_only for field in fields(cls)) else cast("Callable[..., Any]", cls)

    def mismatches(self, wanted: Schema) -> list[str]:
        """Return why values of this schema do not fit another.

        >>> Schema.of("n int, s string").mismatches(Schema.of("n string, s string"))
        ["field 'n' is int, not string"]
        """
        return self.struct.mismatches(wanted.struct)

    def __getstate__(self) -> dict[str, Any]:
        return {"struct": self.struct}

    def __repr__(self) -> str:
        return f"Schema({self.ddl!r})"
