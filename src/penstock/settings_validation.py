"""Makes settings of plain data that somebody has given, such as the body of a request.

pydantic is loaded when something is checked: processes that only hold settings start without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import SettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

T = TypeVar("T", bound="DataclassInstance")


def validated(kind: type[T], given: Any) -> T:
    """Return settings made of plain data. Raises SettingError that names each wrong setting.

    >>> from penstock.job_settings import JobSettings
    >>> validated(JobSettings, {"replicas": {"k": 2}}).replicas.k
    2
    >>> validated(JobSettings, {"replicas": {"k": "2"}})
    Traceback (most recent call last):
    penstock.errors.SettingError: replicas.k: Input should be a valid integer, not '2'
    """
    from pydantic import ValidationError

    try:
        # Strict dataclasses are made of JSON text, and not of the same data as a dict.
        made: T = _adapter(kind).validate_json(json.dumps(given, default=repr))
    except ValidationError as error:
        raise SettingError("; ".join(map(_reason, error.errors(include_url=False)))) from None
    return made


def changed(settings: T, changes: Any) -> T:
    """Return settings with some of them changed, at any depth. Raises SettingError.

    >>> from penstock.job_settings import JobSettings
    >>> before = validated(JobSettings, {"replicas": {"k": 2}})
    >>> changed(before, {"replicas": {"publisher": "primary"}}).replicas.k
    2
    """
    if not isinstance(changes, Mapping):
        return validated(type(settings), changes)
    return validated(type(settings), _merged(settings, changes))


def _merged(settings: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace what is given; groups of settings are merged, and mappings that are settings are not."""
    before: dict[str, Any] = {**asdict(settings), **changes}
    for name, given in changes.items():
        inner = getattr(settings, name, None)
        if is_dataclass(inner) and isinstance(given, Mapping):
            before[name] = _merged(inner, given)
    return before


def _reason(fault: Mapping[str, Any]) -> str:
    where, value = ".".join(map(str, fault["loc"])), fault["input"]
    if fault["type"] == "unexpected_keyword_argument":
        return f"{where}: there is no such setting"
    told = str(fault["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(value, dict | list) or str(value) in told else f", not {value!r}"
    return f"{where}: {told}{shown}" if where else f"{told}{shown}"


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
