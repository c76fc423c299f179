"""Names of jobs, vertices and ports. They serve as names of folders and of ZooKeeper nodes too."""

from __future__ import annotations

import re
from typing import Any

from penstock.graph.wording import shown

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_RESERVED_NAMES = frozenset({"zookeeper"})


def name_fault(name: Any) -> str | None:
    """Return why a value cannot be a name, or None when it can.

    >>> name_fault("lines-2.raw")
    >>> name_fault("a..b")
    "'a..b' must not hold '..'"
    """
    if not isinstance(name, str):
        return f"{shown(name)} must be a string"
    if not _NAME_PATTERN.fullmatch(name):
        return (
            f"{shown(name)} must start with a letter or digit and hold only letters, digits, "
            "'.', '_' and '-', at most 200 of them"
        )
    if ".." in name:
        return f"{shown(name)} must not hold '..'"
    if name in _RESERVED_NAMES:
        return f"{shown(name)} is reserved"
    return None
