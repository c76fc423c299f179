"""Where the values of a row go in a statement of SQL: every database module writes it in its own way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import SettingError

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|%%", re.DOTALL)
_STYLES = {
    "pyformat": re.compile(r"%\((\w+)\)s"),
    "format": re.compile(r"(%s)"),
    "qmark": re.compile(r"(\?)"),
    "numeric": re.compile(r"(?<![:\w]):(\d+)"),
    "named": re.compile(r"(?<![:\w]):([A-Za-z_]\w*)"),
}
"""By their names in the DB-API, in the order of looking: where values are ``%s``, a ``?`` is an operator."""


class Placeholders:
    """The placeholders of a statement, and how values are handed over with it.

    >>> found = Placeholders("INSERT INTO totals VALUES (:user, :total)")
    >>> found.style, found.values({"user": "ada", "total": 3, "more": 4})
    ('named', ('ada', 3))
    >>> found.arguments(("ada", 3))
    {'user': 'ada', 'total': 3}
    >>> Placeholders("INSERT INTO totals VALUES (?, ?)").arguments(("ada", 3))
    ('ada', 3)
    """

    def __init__(self, statement: str) -> None:
        bare = _QUOTED.sub(" ", statement)
        styles = {style: found for style, pattern in _STYLES.items() if (found := pattern.findall(bare))}
        if not styles:
            raise SettingError(
                "DatabaseSink: insert has no place for a value: write ?, %s, :name or %(name)s, as the"
                " database module wants it"
            )
        style, found = next(iter(styles.items()))
        self.style = style
        self.names: tuple[str, ...] = ()
        """Of values that are handed over by name."""
        self.count = max(map(int, found)) if style == "numeric" else len(found)
        if style in ("named", "pyformat"):
            self.names = tuple(dict.fromkeys(found))
            self.count = len(self.names)

    def values(self, row: Any) -> tuple[Any, ...]:
        """Return the values of a row in their order; raises ValueError when it does not fit."""
        if self.names and isinstance(row, Mapping):
            lacking = [name for name in self.names if name not in row]
            if lacking:
                raise ValueError(f"a row lacks {', '.join(map(repr, lacking))}")
            return tuple(row[name] for name in self.names)
        if not isinstance(row, list | tuple):
            wanted = "a dict or a tuple" if self.names else "a tuple"
            raise ValueError(f"a row is {wanted}, not {type(row).__name__}")
        if len(row) != self.count:
            raise ValueError(f"a row has {len(row)} values, and insert takes {self.count}")
        return tuple(row)

    def arguments(self, values: Sequence[Any]) -> Any:
        """Return values as they are handed over with the statement."""
        return dict(zip(self.names, values, strict=True)) if self.names else tuple(values)

    def statement(self, text: str, *values: Any) -> tuple[str, Any]:
        """Return another statement in the same style, with ``{}`` for each value, and its arguments.

        >>> Placeholders("INSERT INTO totals VALUES (%s)").statement("DELETE FROM totals WHERE n < {}", 5)
        ('DELETE FROM totals WHERE n < %s', (5,))
        """
        names = [f"p{number}" for number in range(1, len(values) + 1)]
        marks = {
            "pyformat": [f"%({name})s" for name in names],
            "format": ["%s"] * len(names),
            "qmark": ["?"] * len(names),
            "numeric": [f":{name[1:]}" for name in names],
            "named": [f":{name}" for name in names],
        }[self.style]
        by_name = self.style in ("named", "pyformat")
        return text.format(*marks), dict(zip(names, values, strict=True)) if by_name else values
