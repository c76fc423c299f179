"""The options of a connector, checked when it is made: a wrong one is told where it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import SettingError
from penstock.graph.wording import choices, shown


def check_whole_number(owner: str, name: str, value: Any, least: int = 1, *, optional: bool = False) -> None:
    """Refuse what is not a whole number of at least ``least``.

    >>> whole("RateSource", "partitions", 2)
    >>> whole("RateSource", "partitions", 0)
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
    """Refuse what is not a number above 0."""
    if value is None and optional:
        return
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes a number above 0{none}, not {shown(value)}")


def check_choice(owner: str, name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse what is not in a list of names.

    >>> one_of("FileSink", "format", "xml", ("parquet", "json"))
    Traceback (most recent call last):
    penstock.errors.SettingError: FileSink: format is one of 'parquet', 'json', not 'xml'
    """
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"{owner}: {name} is one of {choices(tuple(known))}, not {shown(value)}")


def check_function(owner: str, name: str, value: Any, *, optional: bool = True) -> None:
    """Refuse what cannot be called."""
    if not (callable(value) or (optional and value is None)):
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes a function{none}, not {shown(value)}")


def check_text(owner: str, name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what is not text with something in it."""
    if value is None and optional:
        return
    if not isinstance(value, str) or not value:
        none = ", or None" if optional else ""
        raise SettingError(f"{owner}: {name} takes text{none}, not {shown(value)}")
