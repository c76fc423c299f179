"""What an aggregation looks at: the value itself, a field of it, or what a function makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.graph.wording import shown

FieldSelector = str | Callable[[Any], Any] | None
"""A field name of dicts or objects, a function of the value, or None for the value itself."""


class FieldReader:
    """Reads one field of values: a key of a dict, an attribute of anything else.

    >>> Field("price")({"price": 3})
    3
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        """Return the field; a value without it raises an error that names the field."""
        name = self.name
        if isinstance(value, dict | Mapping):
            try:
                return value[name]
            except KeyError:
                fields = ", ".join(map(shown, value)) or "none"
                raise KeyError(f"the value has no field {name!r}: its fields are {fields}") from None
        try:
            return getattr(value, name)
        except AttributeError:
            raise AttributeError(f"the value {shown(value)} has no field {name!r}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldReader, (self.name,)


def itself(value: Any) -> Any:
    """Return the value."""
    return value


def field_reader(of: FieldSelector) -> Callable[[Any], Any]:
    """Return the function that reads what an aggregation looks at."""
    if of is None:
        return itself
    return FieldReader(of) if isinstance(of, str) else of


def selector_faults(of: Any) -> tuple[str, ...]:
    """Return what is wrong with what an aggregation is to look at, if anything is.

    >>> selector_faults("price"), selector_faults(3)
    ((), ('of must be a field name, a function or None, not 3',))
    """
    if of is None or callable(of) or (isinstance(of, str) and of):
        return ()
    return (f"of must be a field name, a function or None, not {shown(of)}",)
