"""Writes rows to a table of any database with a DB-API module, exactly once.

Rows are staged in sealed files. The driver inserts the rows of a batch and, in the same transaction, the
identity of the batch. A batch that is already recorded, after a crash or by another replica, is not inserted
again: only the database decides, independently of the state of the processes.
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

_TRANSIENT_ERRORS = frozenset({"OperationalError", "InterfaceError"})
"""DB-API names of errors of the database and the connection to it, as opposed to errors in a statement."""

_ROWS_PER_CALL = 5000
_BATCHES_PER_CLEANUP = 1000
_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

Row = Callable[[Record], Any]


class DatabaseSink(StagedSink):
    """Inserts rows with the statement ``insert``, exactly once, in one transaction per batch.

    ``connect`` is called on the driver for each batch and returns a connection of a DB-API module, such as
    ``lambda: sqlite3.connect("totals.db")``. ``insert`` has a placeholder for each value, in the style of
    that module; ``row`` is a function of a record that returns the values, a tuple or a dict. Without
    ``row``, a value that is a tuple, list or dict is the row; otherwise the row is ``(key, value)``.
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
        """Create the staging folder, and the table of batches if it does not exist."""
        super().prepare()
        self._batches.prepare(self._connect)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that stages rows."""
        return _RowWriter(self._staging.folder, context, self.row, self._placeholders, self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Insert the rows of a batch, unless it is already in the database."""
        paths = self._staging.paths(receipts)
        run = min(path.stem for path in paths)
        applied = AppliedBatch(receipts[0]["job"], receipts[0]["vertex"], batch, run)
        attempt = 0
        while (failure := self._try(applied, paths)) is not None:
            if not _is_transient(failure) or not self._retries.pause(attempt):
                raise self._commit_error(applied, failure, attempt + 1)
            attempt += 1
        # No delivery mark is needed: the database records the batch.
        self._staging.discard(receipts)

    def describe(self) -> dict[str, Any]:
        """Return the sink's settings. ``connect`` is omitted because it may contain secrets."""
        return {
            "insert": self.insert,
            "batches": self._batches.name,
            "folder": self._staging.described,
        }

    def _connect(self) -> Any:
        assert self.connect is not None, "only the driver's sink can connect"
        return self.connect()

    def _try(self, applied: AppliedBatch, paths: list[Path]) -> Exception | None:
        """Try once; return the error, or None if the batch is in the database afterwards."""
        try:
            with opened(self._connect) as connection:
                if self._batches.has(connection, applied):
                    return None
                # Start a new transaction, which sees what others commit from now on.
                connection.rollback()
                self._insert(connection, applied, paths)
                return None
        except FileNotFoundError as error:
            failure: Exception = FolderError(
                f"{error.filename} is missing and its rows are not in the database: restore the file"
            )
        except Exception as error:
            failure = error
        # Another replica may have inserted the batch, or our commit succeeded and its reply was lost.
        try:
            with opened(self._connect) as connection:
                return None if self._batches.has(connection, applied) else failure
        except Exception:
            return failure

    def _insert(self, connection: Any, applied: AppliedBatch, paths: list[Path]) -> None:
        now = self._clock()
        # Record the batch first: another replica that inserts the same batch then waits here or fails.
        self._batches.add(connection, applied, now)
        rows = (record.value for path in paths for record in staged_records(path))
        cursor = connection.cursor()
        while chunk := [self._placeholders.arguments(values) for values in islice(rows, _ROWS_PER_CALL)]:
            cursor.executemany(self.insert, chunk)
        if applied.batch % _BATCHES_PER_CLEANUP == 0:
            self._batches.delete_old(connection, applied, now)
        connection.commit()

    def _commit_error(self, applied: AppliedBatch, failure: Exception, tries: int) -> Exception:
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
        # Only the driver connects, so connect need not be picklable.
        return {**self.__dict__, "connect": None, "_clock": None}


def _is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, FolderError):
        return False
    return isinstance(error, OSError) or any(
        kind.__name__ in _TRANSIENT_ERRORS for kind in type(error).__mro__
    )


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
