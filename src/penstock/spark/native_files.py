"""Files that Spark itself reads for a source and writes for a sink, in one batch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.columns import KEY, TIME
from penstock.graph.schema import Schema
from penstock.spark.frames import with_ends
from penstock.spark.row_digest import RowDigest

_COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "true",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""The ledger commits, so Spark need not; and a second file of checksums beside each one, which Parquet's own
make superfluous, would cost another fork of chmod."""


def read_files(session: Any, how: dict[str, Any], declared: Schema | None) -> Any:
    """Return the frame of what a source's ``native`` names, with the keys and times of its records."""
    from pyspark.sql import functions

    schema = how.get("schema") or (declared.ddl if declared is not None else None)
    reader = session.read.format(how["format"]).options(**(how.get("options") or {}))
    if how["format"] in ("csv", "json"):
        # By default Spark makes nulls of what it cannot read.
        reader = reader.option("mode", "FAILFAST")
    frame = reader.schema(schema).load(how["paths"])
    key, time, chosen = how.get("key"), how.get("ts"), how.get("columns")
    if key is not None:
        frame = frame.withColumn(KEY, functions.col(f"`{key}`"))
    if time is not None:
        column = functions.col(f"`{time}`")
        if frame.schema[time].dataType.simpleString() == "string":
            moment = column.try_cast("timestamp").cast("double")
            frame = frame.withColumn(TIME, functions.coalesce(column.try_cast("double"), moment))
        else:
            frame = frame.withColumn(TIME, column.cast("double"))
    if chosen is not None:
        frame = frame.select(*chosen, *(name for name in (KEY, TIME) if name in frame.columns))
    return with_ends(frame)


def write_files(
    frame: Any, target: dict[str, Any], batch: int, digest: RowDigest | None = None
) -> tuple[str, list[str]]:
    """Let Spark write a frame into a sink's staging folder; return a name for it, and the files.

    A ``digest`` sees what is in the files.
    """
    task = f"{batch:012d}-{uuid4().hex}"
    staging = Path(target["staging"])
    content = _as_sink_wants(frame, target)
    content = content if digest is None else digest.watching(content)
    writer = content.write.format(target["format"]).options(**_COMMIT)
    if target.get("compression"):
        writer = writer.option("compression", target["compression"])
    folder = staging / task
    writer.save(str(folder))
    files = []
    for number, path in enumerate(sorted(folder.iterdir())):
        # Spark adds checksums, a mark of success, and where there is nothing a file without rows.
        if path.name[0] not in "._" and row_count(target["format"], [str(path)]) != 0 and path.stat().st_size:
            files.append(str(path.rename(staging / f"{task}-{number:05d}{path.suffix}")))
    shutil.rmtree(folder)
    return task, files


def row_count(format: str, paths: list[str]) -> int | None:
    """Return how many rows files have, where that can be told without reading them."""
    if format != "parquet":
        return None
    from pyarrow.parquet import read_metadata

    return sum(int(read_metadata(path).num_rows) for path in paths)


def _as_sink_wants(frame: Any, target: dict[str, Any]) -> Any:
    """Return the columns that a sink's files have: keys and times only where it names columns for them."""
    ends = {KEY: target.get("key_column"), TIME: target.get("ts_column")}
    for name, column in ends.items():
        if name in frame.columns:
            frame = frame.withColumnRenamed(name, column) if column else frame.drop(name)
    if target.get("schema"):
        others = [name for name in frame.columns if name in ends.values()]
        fields = [field for field in Schema.of(target["schema"]).fields if field.name not in others]
        frame = frame.select(*(frame[f"`{f.name}`"].cast(f.type.ddl) for f in fields), *others)
    return frame
