"""Reads the files of a folder, each once and completely."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from penstock import setting_values
from penstock.columns import Columns
from penstock.connect.file_index import FileIndex, IndexedFile
from penstock.connect.file_readers import ParquetFormat, TextFormat
from penstock.connect.value_conversion import read_schema, write_schema
from penstock.errors import FolderError, SettingError
from penstock.graph.connector_api import Position, Rejected, Source, Split
from penstock.local_files import local_path
from penstock.record import Record

_FORMATS = ("lines", "csv", "json", "parquet")
_NATIVE = {"lines": "text", "csv": "csv", "json": "json", "parquet": "parquet"}
_GLOB_CHARACTERS = frozenset("{}[]*?\\")


class FileSource(Source):
    """Reads every file that is in a folder or appears there, once and completely.

    Files must be complete when they appear: write them elsewhere on the same file system or under a name
    that begins with ``.`` or ``_``, then rename them. Data appended to a file later is not read. Values are
    strings (``lines``), decoded JSON values (``json``) or dicts of columns (``csv``, ``parquet``). ``key``
    and ``ts`` are names of fields or functions of the value.
    """

    def __init__(
        self,
        folder: str | Path,
        format: str = "lines",
        *,
        schema: Any = None,
        key: str | Callable[[Any], Any] | None = None,
        ts: str | Callable[[Any], Any] | None = None,
        columns: Sequence[str] | None = None,
        pattern: str = "*",
        header: bool = True,
        separator: str = ",",
        partitions: int = 2,
        max_files_per_batch: int = 1000,
        max_bytes_per_batch: int | None = 256 << 20,
        ignore_missing: bool = False,
        index: str | Path | None = None,
    ) -> None:
        owner = "FileSource"
        setting_values.check_choice(owner, "format", format, _FORMATS)
        setting_values.check_text(owner, "pattern", pattern)
        if "/" in pattern:
            raise SettingError(
                f"{owner}: pattern takes a pattern of names, such as '*.csv', not {pattern!r:.60}: only"
                " files of the folder itself are read"
            )
        setting_values.check_whole_number(owner, "partitions", partitions)
        setting_values.check_whole_number(owner, "max_files_per_batch", max_files_per_batch)
        setting_values.check_whole_number(owner, "max_bytes_per_batch", max_bytes_per_batch, optional=True)
        if not isinstance(separator, str) or len(separator) != 1:
            raise SettingError(f"{owner}: separator takes one character, not {separator!r:.60}")
        for option, selector in (("key", key), ("ts", ts)):
            _check_selector(format, option, selector)
        if columns is not None and (
            format == "lines" or isinstance(columns, str) or not all(isinstance(c, str) for c in columns)
        ):
            raise SettingError(f"{owner}: columns takes a list of names, for csv, json and parquet")
        if schema is not None and format == "lines":
            raise SettingError(f"{owner}: lines have no schema; their values are strings")
        if format == "csv" and not header and schema is None:
            raise SettingError(
                f"{owner}: CSV files without a header need schema= for the names of the columns"
            )
        self.folder = local_path(f"{owner}: folder", folder)
        self.format = format
        self.schema = None if schema is None else read_schema(owner, schema)
        self.key, self.ts = key, ts
        self.columns = None if columns is None else tuple(columns)
        self.pattern = pattern
        self.header, self.separator = header, separator
        self.partitions = partitions
        self.max_files_per_batch = max_files_per_batch
        self.max_bytes_per_batch = max_bytes_per_batch
        self.ignore_missing = ignore_missing
        self.replicable = not ignore_missing
        self.not_replicable = (
            "with ignore_missing=True one replica could read a file that another one skips: remove it"
            if ignore_missing
            else ""
        )
        index_folder = None if index is None else local_path(f"{owner}: index", index)
        self._index = FileIndex(self.folder, pattern, index_folder)
        if self.schema is not None:
            self._check_names([column.name for column in self.schema])

    def begin(self) -> Position:
        """Start with the first indexed file that still exists."""
        files = self._index.update()
        first = 0
        while first < len(files) and not (self.folder / files[first].name).exists():
            first += 1
        return {"files": first, "index": self._index.id}

    def latest(self, after: Position) -> Position:
        """Find new files and return the end of the next batch: at most its limits, at least one file."""
        files = self._index.update()
        self._check_index(after, len(files))
        start = end = after["files"]
        room = float("inf") if self.max_bytes_per_batch is None else self.max_bytes_per_batch
        for file in files[start : start + self.max_files_per_batch]:
            room -= file.size
            if room < 0 and end > start:
                break
            end += 1
        if end == start:
            return after
        # The number of found files is part of the position, so that all processes derive the same lanes.
        return {"files": end, "index": self._index.id, "found": len(files)}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Assign files to lanes by their index, so that a file's lane does not depend on batch boundaries."""
        lanes: list[list[IndexedFile]] = [[] for _ in range(self.partitions)]
        for number, file in enumerate(self._range(start, end), start["files"]):
            lanes[number % self.partitions].append(file)
        return [(lane, files) for lane, files in enumerate(lanes) if files]

    def read(self, split: Split) -> Iterator[list[Record] | Columns | Rejected]:
        """Read the files of a split, one after another."""
        _, files = split
        reader = self._reader()
        for name, size, changed in files:
            found = IndexedFile(name, size, changed)
            try:
                with (self.folder / name).open("rb") as file:
                    self._check_unchanged(found, os.fstat(file.fileno()))
                    yield from reader.read(file, name)
                    self._check_unchanged(found, os.fstat(file.fileno()))
                    # A file that was rejected as a whole has not been read to its end.
                    if self.format != "parquet" and not file.read(1) and file.tell() != size:
                        raise FolderError(
                            f"{self.folder / name} has {size} bytes, but only {file.tell()} could be read"
                        )
            except FileNotFoundError:
                if not self.ignore_missing:
                    raise self._removed_error(name) from None
            except OSError as error:
                raise FolderError(f"{self.folder / name} cannot be read: {error.strerror or error}") from None

    def lane(self, split: Split) -> str:
        """Return the number of the split's lane."""
        return str(split[0])

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the lanes of all non-empty files found by that position, read or not."""
        return self._filled_lanes(0, end)

    def unread(self, end: Position) -> Sequence[str]:
        """Return the lanes of non-empty files found by that position but not read yet."""
        return self._filled_lanes(end["files"], end)

    def native(self, start: Position, end: Position) -> dict[str, Any] | None:
        """Return how Spark itself can read a range, as plain data; None when only Python can."""
        files = self._range(start, end)
        if callable(self.key) or callable(self.ts):
            return None
        # Spark would expand such characters in a path.
        if any(_GLOB_CHARACTERS.intersection(text) for text in (str(self.folder), *(f.name for f in files))):
            return None
        paths = []
        for file in files:
            path = self.folder / file.name
            try:
                self._check_unchanged(file, path.stat())
            except FileNotFoundError:
                if self.ignore_missing:
                    continue
                raise self._removed_error(file.name) from None
            paths.append(str(path))
        options = {"header": str(self.header).lower(), "sep": self.separator} if self.format == "csv" else {}
        return {
            "format": _NATIVE[self.format],
            "paths": paths,
            "schema": None if self.schema is None else write_schema(self.schema),
            "options": options,
            "columns": None if self.columns is None else list(self.columns),
            "key": self.key,
            "ts": self.ts,
        }

    def describe(self) -> dict[str, Any]:
        """Return the folder and the format, and the pattern, key, ts and schema if set."""
        described: dict[str, Any] = {"folder": str(self.folder), "format": self.format}
        if self.pattern != "*":
            described["pattern"] = self.pattern
        for option, selector in (("key", self.key), ("ts", self.ts)):
            if selector is not None:
                described[option] = selector if isinstance(selector, str) else "a function"
        if self.schema is not None:
            described["schema"] = write_schema(self.schema)
        return described

    def _reader(self) -> Any:
        if self.format == "parquet":
            assert not callable(self.key)
            assert not callable(self.ts)
            return ParquetFormat(self.key, self.ts, self.schema, self.columns)
        return TextFormat(
            self.format, self.key, self.ts, self.schema, self.columns, self.header, self.separator
        )

    def _filled_lanes(self, first: int, end: Position) -> list[str]:
        """Return the lanes of non-empty files from a number on, among those found by a position."""
        files = self._index.indexed()[first : end.get("found")]
        by_lane = (
            (first + number, islice(files, number, None, self.partitions))
            for number in range(self.partitions)
        )
        filled = {
            number % self.partitions for number, its_files in by_lane if any(file.size for file in its_files)
        }
        return [str(lane) for lane in sorted(filled)]

    def _range(self, start: Position, end: Position) -> list[IndexedFile]:
        files = self._index.indexed()
        self._check_index(end, len(files))
        return files[start["files"] : end["files"]]

    def _check_index(self, position: Position, count: int) -> None:
        if position["index"] != self._index.id or position["files"] > count:
            raise FolderError(
                f"{self.folder} is not the folder that the job has read up to file {position['files']}: its "
                "file index has been replaced. Restore the old folder, or start the job from scratch with "
                "fresh=True (--fresh)"
            )

    def _check_unchanged(self, found: IndexedFile, now: os.stat_result) -> None:
        if (now.st_size, now.st_mtime_ns) != (found.size, found.changed):
            raise FolderError(
                f"{self.folder / found.name} has changed since it was found: it had {found.size} bytes then"
                f" and has {now.st_size} now. Files must be complete when they appear: write them elsewhere"
                " and rename them. Restore the original file, or rename the file so that it is read as a new"
                " one, and set ignore_missing=True to skip the old name"
            )

    def _removed_error(self, name: str) -> FolderError:
        return FolderError(
            f"{self.folder / name} was removed before it was read. Restore it, or skip missing files with "
            "FileSource(…, ignore_missing=True)"
        )

    def _check_names(self, names: list[str]) -> None:
        used: list[tuple[str, Any]] = [("key", self.key), ("ts", self.ts)]
        used += [("columns", name) for name in self.columns or ()]
        for option, field in used:
            if isinstance(field, str) and field not in names:
                raise SettingError(f"FileSource: {option} names {field!r}, which is not in the schema")


def _check_selector(format: str, option: str, selector: Any) -> None:
    if selector is None:
        return
    if format == "lines" and not callable(selector):
        raise SettingError(f"FileSource: a line has no fields, so {option} takes a function of the line")
    if format == "parquet" and not isinstance(selector, str):
        raise SettingError(f"FileSource: {option} of Parquet files takes the name of a column")
    if not callable(selector) and not (isinstance(selector, str) and selector):
        raise SettingError(
            f"FileSource: {option} takes the name of a field or a function, not {selector!r:.60}"
        )
