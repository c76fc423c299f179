"""Secrets among settings, kept out of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.parameters import HIDDEN, masked

_SECRET = re.compile(r"(?i)secret|password|passwd|credential|token|access[._-]?key")
_GIVEN = frozenset({"params", "env"})
"""Fields of a job whose names its user has chosen: more of them are taken for those of secrets."""


def redacted(value: Any) -> Any:
    """Return plain data with the text below each name that sounds like a secret's hidden.

    >>> redacted({"conf": {"spark.hadoop.fs.s3a.secret.key": "abc", "spark.ui.enabled": "false"}})
    {'conf': {'spark.hadoop.fs.s3a.secret.key': '*(hidden)*', 'spark.ui.enabled': 'false'}}
    >>> redacted({"params": {"api_key": "abc", "since": "2026"}, "key": "user"})
    {'params': {'api_key': '*(hidden)*', 'since': '2026'}, 'key': 'user'}
    """
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def _redacted(name: str, item: Any) -> Any:
    if isinstance(item, str):
        return HIDDEN if item and _SECRET.search(name) else item
    if name in _GIVEN and isinstance(item, Mapping):
        return masked(redacted(item))
    return redacted(item)
