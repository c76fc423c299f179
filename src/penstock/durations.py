"""Durations as people write them."""

from __future__ import annotations

import re

from penstock.errors import SettingError

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration(text: str) -> float:
    """Read a duration in seconds.

    >>> read_duration("30s"), read_duration("1.5m"), read_duration("250ms"), read_duration("10")
    (30.0, 90.0, 0.25, 10.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if match is None:
        raise SettingError(f"{text!r} is not a duration: write 250ms, 30s, 5m, 1h or 7d")
    return float(match[1]) * _DURATION_UNITS[match[2] or "s"]
