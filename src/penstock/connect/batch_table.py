"""The database table that records which batches are applied, and SQL placeholders of the DB-API."""

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
                "DatabaseSink: insert has no placeholder for a value: write ?, %s, :name or %(name)s, as "
                "the database module requires"
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


Connect = Callable[[], Any]
"""Opens a connection of the DB-API (PEP 249)."""

_KEPT_BATCHES = 10_000
_KEPT_SECONDS = 30 * 24 * 3600.0
_CREATE = (
    "CREATE TABLE {table} (job VARCHAR(200) NOT NULL, sink VARCHAR(200) NOT NULL, batch BIGINT NOT NULL,"
    " attempt VARCHAR(64) NOT NULL, applied_at DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (job, sink, batch, attempt))"
)


@dataclass(frozen=True)
class AppliedBatch:
    """A batch of a sink, as the table names it."""

    job: str
    sink: str
    batch: int
    attempt: str
    """Of the run whose output counts: a job that is started from scratch counts its batches anew."""


class BatchTable:
    """One row for each batch, written in the transaction that writes the batch."""

    def __init__(self, name: str, style: Placeholders) -> None:
        self.name = name
        self._style = style

    @property
    def definition(self) -> str:
        """The statement that makes the table."""
        return _CREATE.format(table=self.name)

    def has(self, connection: Any, applied: AppliedBatch) -> bool:
        """Whether a batch is in the database."""
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
        """Note that a batch is in the database; fails, at the latest at the commit, when it is there."""
        self._run(
            connection,
            "INSERT INTO {table} (job, sink, batch, attempt, applied_at) VALUES ({}, {}, {}, {}, {})",
            applied.job,
            applied.sink,
            applied.batch,
            applied.attempt,
            now,
        )

    def forget_before(self, connection: Any, applied: AppliedBatch, now: float) -> None:
        """Remove what nobody will ask for any more."""
        self._run(
            connection,
            "DELETE FROM {table} WHERE job = {} AND sink = {} AND batch < {} AND applied_at < {}",
            applied.job,
            applied.sink,
            applied.batch - _KEPT_BATCHES,
            now - _KEPT_SECONDS,
        )

    def prepare(self, connect: Connect) -> None:
        """Make the table unless it is there, and see that the database takes a transaction back."""
        if self._fault(connect) is not None:
            # Another replica may make it at the same moment. What counts is whether it is there then.
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
        """Return why the table cannot be read, if it cannot."""
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
    """Give a connection, and close it; what was not committed is taken back."""
    connection = connect()
    try:
        yield connection
    finally:
        for end in (connection.rollback, connection.close):
            with suppress(Exception):
                end()
