"""Documents as JSON, with the version of their schema.

Reading a document drops the fields that this version does not know. To change a document that a later version
may have written, pass its old content to :func:`encode`, which keeps these fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from penstock.errors import PenstockError, choices, shown

SCHEMA = 1
"""The schema of most kinds of documents; others have a class variable of that name.

Documents of a later schema are refused, because they may mean something else.
"""

T = TypeVar("T")


class DocumentError(PenstockError):
    """A document cannot be read."""


def encode(document: Any, over: bytes = b"") -> bytes:
    """Write a document, and keep the unknown fields of the document that it replaces, ``over``.

    >>> from penstock.cluster.assignment_documents import ExecutorSlot
    >>> encode(ExecutorSlot(1, "n1", 2, 1024))
    b'{"cores":2,"memory":1024,"node":"n1","ordinal":1,"schema":1}'
    >>> encode(ExecutorSlot(1, "n1", 4, 1024), over=b'{"cores":2,"gpus":1,"schema":1}')
    b'{"cores":4,"gpus":1,"memory":1024,"node":"n1","ordinal":1,"schema":1}'
    """
    content = asdict(document)
    if over:
        content = _unknown(type(document), json.loads(over), content)
    return json.dumps(
        {**content, "schema": _schema(type(document))}, sort_keys=True, separators=(",", ":")
    ).encode()


def _unknown(kind: type, before: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Add the fields of ``before`` that are unknown for this kind of document, also in nested documents."""
    before = _in_current_schema(kind, before)
    known = {field.name for field in fields(kind)}
    merged = {name: value for name, value in before.items() if name not in known} | content
    for name, hint in _hints(kind).items():
        inner, given = before.get(name), content[name]
        part = _document_in(hint)
        if part is None:
            continue
        if isinstance(inner, dict) and isinstance(given, dict):
            merged[name] = _unknown(part, inner, given)
        elif isinstance(inner, list) and isinstance(given, list | tuple):
            merged[name] = _unknown_in_list(part, inner, given)
    return merged


def _unknown_in_list(kind: type, before: list[Any], content: Sequence[dict[str, Any]]) -> list[Any]:
    """Add the unknown fields to each document of a list, which is identified by its first field."""
    first = fields(kind)[0].name
    known = {_shown(one[first]): one for one in before if isinstance(one, dict) and first in one}
    return [_unknown(kind, known.get(_shown(one[first]), {}), one) for one in content]


def _shown(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _document_in(hint: Any) -> type | None:
    """Return the kind of document that a field holds, alone, optional, or in a list."""
    if get_origin(hint) in (Union, UnionType, tuple):
        hint = next((part for part in get_args(hint) if part is not type(None)), None)
    return hint if is_dataclass(hint) and isinstance(hint, type) else None


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def decode(kind: type[T], data: bytes) -> T:
    """Read a document of one kind; raises DocumentError.

    >>> from penstock.cluster.assignment_documents import ExecutorSlot
    >>> decode(ExecutorSlot, encode(ExecutorSlot(1, "n1", 2, 1024)))
    ExecutorSlot(ordinal=1, node='n1', cores=2, memory=1024)
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise DocumentError(f"this is no {kind.__name__}: {error}") from error
    if not isinstance(content, dict):
        raise DocumentError(f"this is no {kind.__name__}: it is not an object")
    schema = content.get("schema")
    if type(schema) is not int or not 1 <= schema <= _schema(kind):
        raise DocumentError(f"this {kind.__name__} has schema {schema!r}, not {_schema(kind)}")
    # Its settings would be taken for defaults.
    if schema > 1 and "settings" not in content:
        raise DocumentError(f"this {kind.__name__} has schema {schema}, and no settings")
    return cast(T, of_plain(kind, content))


def _schema(kind: type) -> int:
    schema: int = getattr(kind, "SCHEMA", SCHEMA)
    return schema


def _in_current_schema(kind: type, given: Any) -> Any:
    """Move the settings of a document of schema 1, also a nested one, to their current place."""
    move = getattr(kind, "of_schema_1", None)
    return given if move is None or "settings" in given else move(given)


def of_plain(kind: Any, given: Any) -> Any:
    """Return a value of a type, given its form in JSON."""
    return _reader(kind)(given)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that reads values of a type. It is cached: a master reads hundreds a second."""
    origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return partial(_of_object, kind)
    if origin in (Union, UnionType):
        part = _reader(next(part for part in get_args(kind) if part is not type(None)))
        return lambda given: None if given is None else part(given)
    if origin is tuple:
        return partial(_of_list, _reader(get_args(kind)[0]))
    if origin is Literal:
        return partial(_of_choice, get_args(kind))
    if origin is not None and issubclass(origin, Mapping):
        return partial(_of_mapping, _reader(get_args(kind)[1]))
    if kind is Any:
        return lambda given: given
    return partial(_of_scalar, kind)


def _of_list(item: Callable[[Any], Any], given: Any) -> Any:
    _expect(isinstance(given, list), "a list", given)
    return tuple(map(item, given))


def _of_mapping(value: Callable[[Any], Any], given: Any) -> Any:
    _expect(isinstance(given, dict), "an object", given)
    return {name: value(item) for name, item in given.items()}


def _of_choice(known: tuple[str, ...], given: Any) -> Any:
    _expect(isinstance(given, str), "text", given)
    if given not in known:
        raise DocumentError(f"expected one of {choices(known)}, found {shown(given)}")
    return given


def _of_scalar(kind: type, given: Any) -> Any:
    if type(given) is kind:
        return given
    if kind is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    right = isinstance(given, kind) and (kind is bool or not isinstance(given, bool))
    _expect(right, kind.__name__, given)
    return given


def _of_object(kind: type, given: Any) -> Any:
    _expect(isinstance(given, dict), "an object", given)
    given = _in_current_schema(kind, given)
    values = {}
    for name, scalar, read, required in _fields(kind):
        if name in given:
            value = given[name]
            if type(value) is not scalar:
                try:
                    value = read(value)
                except DocumentError as error:
                    raise DocumentError(f"{kind.__name__}.{name}: {error}") from None
            values[name] = value
        elif required:
            raise DocumentError(f"{kind.__name__} lacks {name}")
    return kind(**values)


@cache
def _fields(kind: type) -> list[tuple[str, Any, Callable[[Any], Any], bool]]:
    """Return for each field its name, its type if that is plain, its reader, and whether it is required.

    Callable annotations of a field, besides its type, check the value.
    """
    hints, annotated = _hints(kind), get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        hint = hints[field.name]
        read, scalar = _reader(hint), hint if hint in (str, int, float, bool) else None
        for check in filter(callable, getattr(annotated[field.name], "__metadata__", ())):
            read, scalar = partial(_checked, read, check), None
        required = field.default is MISSING and field.default_factory is MISSING
        found.append((field.name, scalar, read, required))
    return found


def _checked(read: Callable[[Any], Any], check: Callable[[Any], object], given: Any) -> Any:
    value = read(given)
    try:
        check(value)
    except ValueError as error:
        raise DocumentError(str(error)) from None
    return value


def _expect(right: bool, wanted: str, given: Any) -> None:
    if not right:
        raise DocumentError(f"expected {wanted}, found {type(given).__name__}")
