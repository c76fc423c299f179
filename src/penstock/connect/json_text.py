"""JSON text of values that are JSON data, and of no others."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import UnstorableValueError
from penstock.graph.wording import shown

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(value: Any) -> str:
    """Return the text of a value. A tuple is written as the list it would be read as.

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
        raise UnstorableValueError("not JSON data: it is nested too deep, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(f"not JSON data: {error}") from None
    return text


def _check_keys(value: Any) -> None:
    """Refuse keys that JSON would turn into text without a word."""
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
