"""Secrets among settings, kept out of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(r"(?i)secret|password|passwd|credential|token|access[._-]?key")
HIDDEN = "*(hidden)*"


def redacted(value: Any) -> Any:
    """Return plain data with the text below each name that sounds like a secret's hidden.

    >>> redacted({"conf": {"spark.hadoop.fs.s3a.secret.key": "abc", "spark.ui.enabled": "false"}})
    {'conf': {'spark.hadoop.fs.s3a.secret.key': '*(hidden)*', 'spark.ui.enabled': 'false'}}
    """
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if isinstance(item, str) and item and _SECRET.search(str(name)) else redacted(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value
