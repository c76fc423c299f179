"""What the values of a vertex are: fields with names and types, declared once and checked at the edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

from penstock.columns import KEY, TIME
from penstock.errors import SettingError
from penstock.graph.annotations import is_record_class, read_class
from penstock.graph.datatypes import DataType, Field, Rebuild, StructType
from penstock.graph.ddl import read_fields
from penstock.graph.wording import shown

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

        Raises :class:`~penstock.errors.SettingError`, which names the place, for anything else.
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
        """The fields, in order."""
        return self.struct.fields

    @property
    def cls(self) -> type | None:
        """The dataclass of the values; None where they are dicts."""
        return self.struct.cls

    @property
    def ddl(self) -> str:
        """The schema as text, the same however it was declared.

        >>> Schema.of("n BIGINT, tags array<string> NOT NULL").ddl
        'n long, tags array<string> not null'
        """
        return ", ".join(field.ddl for field in self.fields)

    def check(self, value: Any) -> str | None:
        """Return why a value does not fit, or None when it does."""
        return self.struct.fault(value, "")

    def build(self, fields: dict[str, Any]) -> Any:
        """Return the value that has these fields, as they come out of columns."""
        return fields if self.rebuild is None else self.rebuild(fields)

    @cached_property
    def rebuild(self) -> Rebuild | None:
        """What :meth:`build` does; None when it would do nothing."""
        return self.struct.rebuild()

    @cached_property
    def positional(self) -> Callable[..., Any] | None:
        """The dataclass where it can simply be called with the columns' values in order, which is faster."""
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
