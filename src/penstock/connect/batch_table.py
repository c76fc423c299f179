"""The database table of applied batches, and SQL placeholders in the styles of the DB-API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from penstock.errors import SettingError, cause_of

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|%%", re.DOTALL)
_STYLES = {
    "pyformat": re.compile(r"%\((\w+)\)s"),
    "format": re.compile(r"(%s)"),
    "qmark": re.compile(r"(\?)"),
    "numeric": re.compile(r"(?<![:\w]):(\d+)"),
    "named": re.compile(r"(?<![:\w]):([A-Za-z_]\w*)"),
}
"""The DB-API's parameter styles, in search order: in a statement with ``%s``, a ``?`` is an operator."""


class Placeholders:
    """The placeholders of a statement, and the form in which it takes its values.

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
                "DatabaseSink: insert has no placeholder for a value: write ?, %s, :name or %(name)s, as "
                "the database module requires"
            )
        style, found = next(iter(styles.items()))
        self.style = style
        self.names: tuple[str, ...] = ()
        """The names of the values in a style with named placeholders, otherwise empty."""
        self.count = max(map(int, found)) if style == "numeric" else len(found)
        if style in ("named", "pyformat"):
            self.names = tuple(dict.fromkeys(found))
            self.count = len(self.names)

    def values(self, row: Any) -> tuple[Any, ...]:
        """Return the values of a row in placeholder order; ValueError if the row does not match."""
        if self.names and isinstance(row, Mapping):
            lacking = [name for name in self.names if name not in row]
            if lacking:
                raise ValueError(f"a row lacks {', '.join(map(repr, lacking))}")
            return tuple(row[name] for name in self.names)
        if not isinstance(row, list | tuple):
            wanted = "a dict or a tuple" if self.names else "a tuple"
            raise ValueError(f"a row must be {wanted}, not {type(row).__name__}")
        if len(row) != self.count:
            raise ValueError(f"a row has {len(row)} values, but insert takes {self.count}")
        return tuple(row)

    def arguments(self, values: Sequence[Any]) -> Any:
        """Return values in the form in which they are passed with the statement."""
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


Connect = Callable[[], Any]
"""Opens a DB-API connection (PEP 249)."""

_KEPT_BATCHES = 10_000
_KEPT_SECONDS = 30 * 24 * 3600.0
_CREATE = (
    "CREATE TABLE {table} (job VARCHAR(200) NOT NULL, sink VARCHAR(200) NOT NULL, batch BIGINT NOT NULL,"
    " attempt VARCHAR(64) NOT NULL, applied_at DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (job, sink, batch, attempt))"
)


@dataclass(frozen=True)
class AppliedBatch:
    """Identifies a batch of a sink in the table."""

    job: str
    sink: str
    batch: int
    attempt: str
    """Distinguishes runs: a job started from scratch numbers its batches from 0 again."""


class BatchTable:
    """The table with one row for each applied batch, written in the same transaction as the batch."""

    def __init__(self, name: str, style: Placeholders) -> None:
        self.name = name
        self._style = style

    @property
    def definition(self) -> str:
        """The statement that creates the table."""
        return _CREATE.format(table=self.name)

    def has(self, connection: Any, applied: AppliedBatch) -> bool:
        """Return whether a batch has been applied."""
        found = self._run(
            connection,
            "SELECT attempt FROM {table} WHERE job = {} AND sink = {} AND batch = {} AND attempt = {}",
            applied.job,
            applied.sink,
            applied.batch,
            applied.attempt,
        )
        return found.fetchone() is not None

    def add(self, connection: Any, applied: AppliedBatch, now: float) -> None:
        """Record a batch as applied. If it is already recorded, this or the commit fails."""
        self._run(
            connection,
            "INSERT INTO {table} (job, sink, batch, attempt, applied_at) VALUES ({}, {}, {}, {}, {})",
            applied.job,
            applied.sink,
            applied.batch,
            applied.attempt,
            now,
        )

    def delete_old(self, connection: Any, applied: AppliedBatch, now: float) -> None:
        """Delete rows of old batches, which are not looked up any more."""
        self._run(
            connection,
            "DELETE FROM {table} WHERE job = {} AND sink = {} AND batch < {} AND applied_at < {}",
            applied.job,
            applied.sink,
            applied.batch - _KEPT_BATCHES,
            now - _KEPT_SECONDS,
        )

    def prepare(self, connect: Connect) -> None:
        """Create the table if it does not exist, and check that the connection can roll back."""
        if self._fault(connect) is not None:
            # Another replica may create it at the same moment: ignore errors and check again.
            with suppress(Exception), opened(connect) as connection:
                connection.cursor().execute(self.definition)
                connection.commit()
        fault = self._fault(connect)
        if fault is not None:
            raise SettingError(
                f"DatabaseSink: the table {self.name} cannot be used: {cause_of(fault)}. Check the database, "
                f"or create the table yourself: {self.definition}"
            ) from fault
        probe = AppliedBatch("-", "-", -1, uuid4().hex)
        with opened(connect) as connection:
            self.add(connection, probe, 0.0)
            connection.rollback()
            if self.has(connection, probe):
                raise SettingError(
                    "DatabaseSink: the connection is in autocommit mode, so a failure could leave a part of "
                    "a batch in the database: return a connection from connect with autocommit off"
                )

    def _fault(self, connect: Connect) -> Exception | None:
        """Return the error on reading the table, or None."""
        try:
            with opened(connect) as connection:
                self.has(connection, AppliedBatch("-", "-", -1, ""))
        except Exception as error:
            return error
        return None

    def _run(self, connection: Any, text: str, *values: Any) -> Any:
        cursor = connection.cursor()
        cursor.execute(*self._style.statement(text.replace("{table}", self.name), *values))
        return cursor


@contextmanager
def opened(connect: Connect) -> Iterator[Any]:
    """Open a connection; finally roll back what was not committed and close it."""
    connection = connect()
    try:
        yield connection
    finally:
        for end in (connection.rollback, connection.close):
            with suppress(Exception):
                end()
