"""A streaming source over a folder of Arrow files, as one writes it by hand for PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import StructType

from benchmarks.arrow_files import PARTITIONS, batch_count, file_of, read_file

NAME = "arrow_folder"


@dataclass
class ArrowFile(InputPartition):
    """One file, read by one Spark task."""

    path: str


class ArrowFolderReader(DataSourceStreamReader):
    """Reads the files of one micro-batch at a time; the offset is the number of the next one."""

    def __init__(self, folder: str, batches: int | None) -> None:
        self.folder = Path(folder)
        self.batches = batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Start with the first file."""
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Read one file for each partition a batch."""
        return ReadMaxFiles(PARTITIONS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Say where the next micro-batch ends."""
        available = batch_count(self.folder)
        if self.batches is not None:
            available = min(available, self.batches)
        if isinstance(limit, ReadAllAvailable):
            return {"batch": available}
        return {"batch": min(available, start["batch"] + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the files of a micro-batch."""
        return [
            ArrowFile(str(file_of(self.folder, batch, partition)))
            for batch in range(start["batch"], end["batch"])
            for partition in range(PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a file as Arrow record batches."""
        assert isinstance(partition, ArrowFile)
        return read_file(partition.path)


class ArrowFolder(DataSource):
    """The data source: option ``folder``, and ``batches`` to read only so many micro-batches."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``readStream.format``."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return "key string, value string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return a reader for one query."""
        batches = self.options.get("batches")
        return ArrowFolderReader(self.options["folder"], None if batches is None else int(batches))


def read_stream(session: SparkSession, folder: str, batches: int | None = None) -> DataFrame:
    """Open a folder as a streaming data frame."""
    session.dataSource.register(ArrowFolder)
    reader = session.readStream.format(NAME).option("folder", folder)
    if batches is not None:
        reader = reader.option("batches", batches)
    return reader.load()
