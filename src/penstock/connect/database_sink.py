"""Writes rows to a table of any database with a DB-API module, exactly once.

Rows wait in sealed files. The driver inserts those of a batch and, in the same transaction, the name of the
batch. A batch that the database already has, after a crash or because another replica was faster, is not
inserted again: the database decides, whatever has become of the processes.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from penstock import setting_values
from penstock.connect.batch_table import AppliedBatch, BatchTable, Connect, Placeholders, opened
from penstock.connect.retries import Retries
from penstock.connect.sink_staging import StagedSink, StagingWriter, staged_records
from penstock.errors import (
    ConnectorError,
    FolderError,
    SettingError,
    UnstorableValueError,
    cause_of,
    trace_of,
)
from penstock.graph.connector_api import Receipt, SinkWriter, WriteContext
from penstock.record import Record

_PASSING = frozenset({"OperationalError", "InterfaceError"})
"""What the DB-API calls errors of the database and of the way to it, and not of what was asked."""

_ROWS = 5000
_TIDY_EVERY = 1000
_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

Row = Callable[[Record], Any]


class DatabaseSink(StagedSink):
    """Inserts rows with the statement ``insert``, exactly once, in one transaction a batch.

    ``connect`` is called on the driver for each batch and returns a connection of a DB-API module, such as
    ``lambda: sqlite3.connect("totals.db")``. ``insert`` has a place for each value, written as that module
    wants it; ``row`` is a function of a record that returns the values, a tuple or a dict. Without it a value
    that is a tuple, a list or a dict is the row, and of any other value key and value are.
    """

    shared = True

    def __init__(
        self,
        connect: Connect,
        insert: str,
        *,
        row: Row | None = None,
        batches: str = "penstock_batches",
        retries: int = 5,
        folder: str | Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("DatabaseSink", folder)
        setting_values.check_function("DatabaseSink", "connect", connect, optional=False)
        setting_values.check_text("DatabaseSink", "insert", insert)
        setting_values.check_function("DatabaseSink", "row", row)
        if not isinstance(batches, str) or _TABLE.fullmatch(batches) is None:
            raise SettingError(f"DatabaseSink: batches takes the name of a table, not {batches!r:.60}")
        self.connect: Connect | None = connect
        self.insert = insert
        self.row = row
        self._retries = Retries("DatabaseSink", retries, sleep, chance)
        self._placeholders = Placeholders(insert)
        self._batches = BatchTable(batches, self._placeholders)
        self._clock = clock

    def prepare(self) -> None:
        """Make the folder in which rows wait, and the table of batches unless it is there."""
        super().prepare()
        self._batches.prepare(self._connect)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write down the rows that will be inserted."""
        return _RowWriter(self._staging.folder, context, self.row, self._placeholders, self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Insert the rows of a batch, unless the database has them."""
        paths = self._staging.paths(receipts)
        made_by = min(path.stem for path in paths)
        applied = AppliedBatch(receipts[0]["job"], receipts[0]["vertex"], batch, made_by)
        attempt = 0
        while (failure := self._try(applied, paths)) is not None:
            if not _passing(failure) or not self._retries.pause(attempt):
                raise self._told(applied, failure, attempt + 1)
            attempt += 1
        # The database is where it is written down that the batch is out.
        self._staging.discard(receipts)

    def describe(self) -> dict[str, Any]:
        """Return what is done with a row. How to connect may be a secret."""
        return {
            "insert": self.insert,
            "batches": self._batches.name,
            "folder": self._staging.described,
        }

    def _connect(self) -> Any:
        assert self.connect is not None, "only the driver's own sink can connect"
        return self.connect()

    def _try(self, applied: AppliedBatch, paths: list[Path]) -> Exception | None:
        """Try once; return what went wrong, unless the batch is in the database all the same."""
        try:
            with opened(self._connect) as connection:
                if self._batches.has(connection, applied):
                    return None
                # What others commit from now on is to be seen.
                connection.rollback()
                self._insert(connection, applied, paths)
                return None
        except FileNotFoundError as error:
            failure: Exception = FolderError(
                f"{error.filename} is missing, and its rows are not in the database: restore the file"
            )
        except Exception as error:
            failure = error
        # Another replica may have been faster, or the answer to our own commit was lost on its way.
        try:
            with opened(self._connect) as connection:
                return None if self._batches.has(connection, applied) else failure
        except Exception:
            return failure

    def _insert(self, connection: Any, applied: AppliedBatch, paths: list[Path]) -> None:
        now = self._clock()
        # The name comes first: another replica that is at the same batch then waits here, or fails.
        self._batches.add(connection, applied, now)
        rows = (record.value for path in paths for record in staged_records(path))
        cursor = connection.cursor()
        while chunk := [self._placeholders.arguments(values) for values in islice(rows, _ROWS)]:
            cursor.executemany(self.insert, chunk)
        if applied.batch % _TIDY_EVERY == 0:
            self._batches.forget_before(connection, applied, now)
        connection.commit()

    def _told(self, applied: AppliedBatch, failure: Exception, tries: int) -> Exception:
        if isinstance(failure, FolderError):
            return failure
        after = f" after {tries} tries" if tries > 1 else ""
        return ConnectorError(
            applied.job,
            applied.sink,
            f"batch {applied.batch} was not inserted{after}: {cause_of(failure)}. The rows are kept: check "
            "the database and start the job again",
            trace_of(failure),
        )

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver connects, and what it connects with need not be able to travel.
        return {**self.__dict__, "connect": None, "_clock": None}


def _passing(error: Exception) -> bool:
    """Whether it may go better the next time."""
    if isinstance(error, FolderError):
        return False
    return isinstance(error, OSError) or any(kind.__name__ in _PASSING for kind in type(error).__mro__)


class _RowWriter(StagingWriter):
    def __init__(
        self,
        folder: Path,
        context: WriteContext,
        row: Row | None,
        placeholders: Placeholders,
        synced: bool,
    ) -> None:
        super().__init__(folder, context, synced=synced)
        self._placeholders = placeholders
        self._row = row or self._plain_row

    def write(self, records: list[Record]) -> None:
        rows = []
        for record in records:
            try:
                rows.append(Record(None, self._placeholders.values(self._row(record))))
            except Exception as error:
                reason = f"it cannot be converted to a row: {cause_of(error)}"
                if self._context.reject is None:
                    raise UnstorableValueError(reason) from error
                self._context.reject(record, reason)
        super().write(rows)

    def _plain_row(self, record: Record) -> Any:
        if isinstance(record.value, tuple | list | dict):
            return record.value
        return (record.key, record.value)
