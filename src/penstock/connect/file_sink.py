"""Writes files into a folder, exactly once.

Writers fill files in a hidden staging folder; a receipt maps them to their final names, and the commit
renames them. A final name contains the batch and an id of the writer, so no name is used twice, and a
repeated commit finds its work done. A mark in the staging folder records that all files of a batch have been
renamed, because readers of the folder may already have removed the renamed files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock import setting_values
from penstock.columns import Columns
from penstock.connect.file_writers import FileWriter, JsonFile, ParquetRows
from penstock.connect.sink_staging import DONE, DeliveryMarks, folder_of, lost_file_error
from penstock.connect.value_conversion import read_schema, write_schema
from penstock.errors import FolderError, SettingError
from penstock.graph.connector_api import Receipt, Sink, SinkWriter, WriteContext
from penstock.local_files import local_path, sync, sync_with_parents
from penstock.record import Record

STAGING = ".penstock-staging"

_FORMATS = ("parquet", "json")
_COMPRESSIONS = ("zstd", "snappy", "gzip", "none")
_RENAME_TIMEOUT = 5.0
"""Seconds for which a process waits for another process that renames files of the same batch."""

_POLL_INTERVAL = 0.01


class FileSink(Sink):
    """Writes Parquet files or files of JSON lines into a folder; readers see only complete files.

    The fields of a value that is a dict are the columns; any other value is a column ``value``.
    ``key_column`` and ``ts_column`` name columns for a record's key and time, which are omitted by default.
    Without a ``schema`` the column types of a Parquet file are inferred from its first records.
    """

    transactional = True
    shared = True

    def __init__(
        self,
        folder: str | Path,
        format: str = "parquet",
        *,
        schema: Any = None,
        key_column: str | None = None,
        ts_column: str | None = None,
        max_records_per_file: int = 1_000_000,
        compression: str = "zstd",
        sync: bool = False,
    ) -> None:
        setting_values.check_choice("FileSink", "format", format, _FORMATS)
        setting_values.check_text("FileSink", "key_column", key_column, optional=True)
        setting_values.check_text("FileSink", "ts_column", ts_column, optional=True)
        setting_values.check_whole_number("FileSink", "max_records_per_file", max_records_per_file)
        setting_values.check_choice("FileSink", "compression", compression, _COMPRESSIONS)
        if schema is not None and format != "parquet":
            raise SettingError("FileSink: schema is only for Parquet; JSON values carry their own types")
        if key_column is not None and key_column == ts_column:
            raise SettingError(f"FileSink: key_column and ts_column are both {key_column!r}")
        self.folder = local_path("FileSink: folder", folder)
        self.format = format
        self.schema = None if schema is None else read_schema("FileSink", schema)
        self.key_column, self.ts_column = key_column, ts_column
        self.max_records_per_file = max_records_per_file
        self.compression = compression
        self.sync = sync
        self._marks = DeliveryMarks()

    def prepare(self) -> None:
        """Create the folder."""
        try:
            (self.folder / STAGING).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"FileSink: {self.folder} cannot be written: {error.strerror}") from None
        if self.syncs:
            sync_with_parents(self.folder / STAGING)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer of staged files."""
        return _FileSinkWriter(self, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:  # noqa: ARG002
        """Rename those files of a batch that have not been renamed yet."""
        mark = self._mark(receipts)
        for receipt in receipts:
            for staged, final in receipt["files"]:
                try:
                    (self.folder / STAGING / staged).rename(self.folder / final)
                except FileNotFoundError:
                    self._check_renamed(staged, final, mark)
        if self.syncs:
            sync(self.folder)
        if mark is not None:
            self._marks.make(mark, synced=self.syncs)

    @property
    def syncs(self) -> bool:
        """Whether files are flushed to disk, by this sink's option or by the job's."""
        return self.sync or self.synced

    def _mark(self, receipts: Sequence[Receipt]) -> Path | None:
        """Return the mark of a batch; None for version 0.1.0, which took a missing file for renamed."""
        if "job" not in receipts[0]:
            return None
        _, final = receipts[0]["files"][0]
        return self.folder / STAGING / folder_of(receipts[0]["job"]) / f"{final}{DONE}"

    def _check_renamed(self, staged: str, final: str, mark: Path | None) -> None:
        """Raise ``FolderError`` if a staged file is missing and was not renamed by any process."""
        if not self.folder.exists():
            raise FolderError(f"the folder {self.folder} no longer exists: restore it")
        if mark is None:
            return
        deadline = time.monotonic() + _RENAME_TIMEOUT
        while not (mark.exists() or (self.folder / final).exists()):
            # Another replica may have renamed the file but not made the mark yet, while a reader has already
            # removed the renamed file.
            if time.monotonic() > deadline:
                raise lost_file_error(self.folder / STAGING / staged, mark)
            time.sleep(_POLL_INTERVAL)

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove staged files that will not be committed."""
        for receipt in receipts:
            for staged, _ in receipt["files"]:
                (self.folder / STAGING / staged).unlink(missing_ok=True)

    def tidy(self, job: str) -> None:
        """Remove old files that crashes have left in the staging folder."""
        self._marks.tidy(self.folder / STAGING / folder_of(job))

    def describe(self) -> dict[str, Any]:
        """Return the sink's settings."""
        return {
            "folder": str(self.folder),
            "format": self.format,
            "schema": None if self.schema is None else write_schema(self.schema),
            "key_column": self.key_column,
            "ts_column": self.ts_column,
        }

    def native_target(self, job: str) -> dict[str, Any]:
        """Return where and how Spark itself can write a result, for :meth:`adopt`, as plain data."""
        return {
            "format": self.format,
            "staging": str(self.folder / STAGING / folder_of(job)),
            "folder": str(self.folder),
            "compression": self.compression,
            "schema": None if self.schema is None else write_schema(self.schema),
            "key_column": self.key_column,
            "ts_column": self.ts_column,
        }

    def adopt(self, job: str, batch: int, task: str, files: Sequence[str | Path]) -> Receipt | None:
        """Return the receipt of files that Spark has written into the staging folder."""
        staging, unique = self.folder / STAGING, f"{task}-{uuid4().hex[:8]}"
        named: list[list[str]] = []
        for file in sorted(map(str, files)):
            path = staging / file
            if path.name.startswith((".", "_")):
                continue
            if not path.resolve().is_relative_to(staging.resolve()):
                raise SettingError(f"FileSink: {path} is not in {staging}, so it cannot be added to a batch")
            named.append([str(path.relative_to(staging)), self.final_name(batch, unique, len(named))])
        if self.syncs:
            paths = [staging / staged for staged, _ in named]
            for path in (*paths, *sorted({path.parent for path in paths}), staging):
                sync(path)
        return {"job": job, "files": named} if named else None

    def final_name(self, batch: int, unique: str, number: int) -> str:
        """Return the name of a file of a batch."""
        ending = "parquet" if self.format == "parquet" else "jsonl"
        return f"part-{batch:09d}-{unique}-{number:04d}.{ending}"


class _FileSinkWriter(SinkWriter):
    takes_columns = True

    def __init__(self, sink: FileSink, context: WriteContext) -> None:
        self._sink = sink
        self._context = context
        # Not the task's id: a job may have two sinks for one folder, and a Spark task may write to both.
        self._unique = uuid4().hex
        self._files: list[list[str]] = []
        self._open: FileWriter | None = None

    def write(self, records: list[Record] | Columns) -> None:
        start = 0
        while start < len(records):
            if self._open is None:
                self._open = self._next_file()
            room = self._sink.max_records_per_file - self._open.taken
            self._open.add(_part(records, start, room))
            start += room
            if self._open.taken >= self._sink.max_records_per_file:
                self._close()

    def finish(self) -> Receipt | None:
        self._close()
        if self._files and self._sink.syncs:
            staging = self._sink.folder / STAGING
            for folder in (staging / folder_of(self._context.job), staging):
                sync(folder)
        return {"job": self._context.job, "files": self._files} if self._files else None

    def _next_file(self) -> FileWriter:
        sink, context = self._sink, self._context
        final = sink.final_name(context.batch, self._unique, len(self._files))
        path = sink.folder / STAGING / folder_of(context.job) / final
        path.parent.mkdir(exist_ok=True)
        if sink.format == "json":
            return JsonFile(path, sink.key_column, sink.ts_column, context.reject)
        return ParquetRows(
            path, sink.key_column, sink.ts_column, context.reject, sink.schema, sink.compression
        )

    def _close(self) -> None:
        if self._open is None:
            return
        file, self._open = self._open, None
        if file.close(sync=self._sink.syncs):
            self._files.append([f"{folder_of(self._context.job)}/{file.path.name}", file.path.name])


def _part(records: list[Record] | Columns, start: int, count: int) -> list[Record] | Columns:
    if start == 0 and count >= len(records):
        return records
    if isinstance(records, Columns):
        return Columns(
            records.values.slice(start, count),
            None if records.keys is None else records.keys.slice(start, count),
            None if records.times is None else records.times.slice(start, count),
        )
    return records[start : start + count]
