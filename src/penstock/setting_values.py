"""Parsing and checking of setting values: names, durations, sizes, numbers and choices.

Each error says what is expected and what was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.errors import SettingError, choices, shown

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
NAME = r"^[A-Za-z0-9](\.?[A-Za-z0-9_-])*\.?$"
"""The rule of :func:`name_fault` in a form that other programs can read."""
_RESERVED_NAMES = frozenset({"zookeeper"})


def name_fault(name: Any) -> str | None:
    """Return why a value cannot be a name; None if it can.

    >>> name_fault("lines-2.raw")
    >>> name_fault("a..b")
    "'a..b' must not contain '..'"
    """
    if not isinstance(name, str):
        return f"{shown(name)} must be a string"
    if not _NAME_PATTERN.fullmatch(name):
        return (
            f"{shown(name)} must start with a letter or digit and contain only letters, digits, '.', '_' and "
            "'-', at most 200 characters"
        )
    if ".." in name:
        return f"{shown(name)} must not contain '..'"
    if name in _RESERVED_NAMES:
        return f"{shown(name)} is reserved"
    return None


_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration(text: str) -> float:
    """Parse a duration and return it in seconds.

    >>> read_duration("30s"), read_duration("1.5m"), read_duration("250ms"), read_duration("10")
    (30.0, 90.0, 0.25, 10.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if match is None:
        raise SettingError(f"{text!r} is not a duration: write 250ms, 30s, 5m, 1h or 7d")
    return float(match[1]) * _DURATION_UNITS[match[2] or "s"]


_SIZE_UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}
_BINARY_SIZE_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def read_size(text: str) -> int:
    """Parse a number of bytes with an optional unit.

    >>> read_size("1GB"), read_size("1.5 MB"), read_size("64KiB"), read_size("500")
    (1000000000, 1500000, 65536, 500)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT]i?|)B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise SettingError(f"{text!r} is not a size: write 500, 64KiB, 100MB or 1GB")
    unit = (match[2] or "").capitalize()
    return round(float(match[1]) * (_BINARY_SIZE_UNITS.get(unit) or _SIZE_UNITS[unit]))


def check_whole_number(owner: str, name: str, value: Any, least: int = 1, *, optional: bool = False) -> None:
    """Raise SettingError unless a value is a whole number of at least ``least``.

    >>> check_whole_number("RateSource", "partitions", 2)
    >>> check_whole_number("RateSource", "partitions", 0)
    Traceback (most recent call last):
    penstock.errors.SettingError: RateSource: partitions takes a whole number of at least 1, not 0
    """
    if value is None and optional:
        return
    if type(value) is not int or value < least:
        none = ", or None" if optional else ""
        raise SettingError(
            f"{owner}: {name} takes a whole number of at least {least}{none}, not {shown(value)}"
        )


def check_seconds(owner: str, name: str, value: Any, *, optional: bool = False) -> None:
    """Raise SettingError unless a value is a number above 0."""
    if value is None and optional:
        return
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes a number above 0{none}, not {shown(value)}")


def check_choice(owner: str, name: str, value: Any, known: Sequence[str]) -> None:
    """Raise SettingError unless a value is one of the permitted names.

    >>> check_choice("FileSink", "format", "xml", ("parquet", "json"))
    Traceback (most recent call last):
    penstock.errors.SettingError: FileSink: format is one of 'parquet', 'json', not 'xml'
    """
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"{owner}: {name} is one of {choices(tuple(known))}, not {shown(value)}")


def check_function(owner: str, name: str, value: Any, *, optional: bool = True) -> None:
    """Raise SettingError unless a value is callable."""
    if not (callable(value) or (optional and value is None)):
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes a function{none}, not {shown(value)}")


def check_text(owner: str, name: str, value: Any, *, optional: bool = False) -> None:
    """Raise SettingError unless a value is non-empty text."""
    if value is None and optional:
        return
    if not isinstance(value, str) or not value:
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes text{none}, not {shown(value)}")
