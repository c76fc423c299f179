"""A source and a sink of Parquet files that Spark can read and write itself: all that the engine asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.columns import Columns
from penstock.graph.ends import Position, Receipt, Sink, SinkWriter, Source, Split, WriteContext
from penstock.record import Record


class ParquetFolder(Source):
    """Reads the files of a folder in the order of their names, some in each batch."""

    def __init__(self, folder: Path, *, schema: str, key: str | None = None, files: int = 2) -> None:
        self.folder = str(folder)
        self.schema = schema
        self.key = key
        self.files = files
        self.native_reads = True

    def begin(self) -> Position:
        return {"files": 0}

    def latest(self, after: Position) -> Position:
        return {"files": min(len(self._names()), after["files"] + self.files)}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return self._names()[start["files"] : end["files"]]

    def read(self, split: Split) -> Iterator[list[Record] | Columns]:
        for batch in pq.ParquetFile(split).iter_batches():
            yield Columns(batch, batch.column(self.key) if self.key else None)

    def native(self, start: Position, end: Position) -> dict[str, Any] | None:
        if not self.native_reads:
            return None
        paths = list(self.splits(start, end))
        return {"format": "parquet", "paths": paths, "schema": self.schema, "options": {}, "key": self.key}

    def describe(self) -> dict[str, Any]:
        return {"folder": self.folder, "schema": self.schema}

    def _names(self) -> list[str]:
        return sorted(str(path) for path in Path(self.folder).glob("*.parquet"))


class ParquetSink(Sink):
    """Takes over files that Spark has written; each appears in the folder when its batch is committed."""

    transactional = True

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def prepare(self) -> None:
        Path(self.folder, ".staging").mkdir(parents=True, exist_ok=True)

    def native_target(self) -> dict[str, Any]:
        return {"format": "parquet", "staging": f"{self.folder}/.staging", "folder": self.folder}

    def adopt(self, batch: int, task: str, files: list[str]) -> Receipt | None:
        return {"files": [[path, f"{batch:06d}-{number}.parquet"] for number, path in enumerate(files)]}

    def writer(self, context: WriteContext) -> SinkWriter:
        raise NotImplementedError("these tests let Spark write")

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            for staged, name in receipt["files"]:
                if Path(staged).exists():
                    Path(staged).rename(Path(self.folder, name))

    def rows(self) -> list[dict[str, Any]]:
        return [
            row
            for path in sorted(Path(self.folder).glob("*.parquet"))
            for row in pq.read_table(path).to_pylist()
        ]
