"""The DataFrames of vertices that Spark runs itself.

They are made by SQL or user code, read from files and written to files; with replicas, output gets a digest.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.engine.blueprint import VertexSpec
from penstock.graph.tasks import DataFrameTask, Sql
from penstock.schema.record_schema import KEY, TIME, Schema


def make_frame(session: Any, spec: VertexSpec, frames: Mapping[str, Any]) -> Any:
    """Return the result of a vertex for the frames of its input ports."""
    task = spec.operator
    if isinstance(task, Sql):
        for port, view in task.views.items():
            frames[port].createOrReplaceTempView(view)
        # The views remain: the session belongs to this query, and the next batch replaces them.
        return session.sql(task.query)
    assert isinstance(task, DataFrameTask)
    return task.function(*(frames[port] for port in task.inputs))


def with_ends(frame: Any) -> Any:
    """Return a frame with columns for keys and times; missing ones are null."""
    names = frame.columns
    ends = [(KEY, "string"), (TIME, "double")]
    missing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in ends if name not in names]
    return frame.selectExpr("*", *missing) if missing else frame


_LOW = 0xFFFFFFFF


class RowDigest:
    """Computes the digest of a frame while it is written to files."""

    def __init__(self) -> None:
        from pyspark.sql import Observation

        self._seen = Observation()

    def watching(self, frame: Any) -> Any:
        """Return the frame with an observation of its rows. It must be written exactly once."""
        from pyspark.sql import functions

        columns = [_hashable(frame, field) for field in frame.schema.fields]
        row = functions.xxhash64(*columns)
        # The halves of the hashes are summed separately: Spark fails if a sum overflows.
        low = functions.sum(row.bitwiseAND(functions.lit(_LOW)))
        high = functions.sum(functions.shiftrightunsigned(row, 32))
        return frame.observe(self._seen, low.alias("low"), high.alias("high"))

    def value(self) -> int:
        """Return the digest of the rows that were written."""
        seen = self._seen.get
        return int(((seen["high"] or 0) << 32) + (seen["low"] or 0))


def _hashable(frame: Any, field: Any) -> Any:
    """Return a column in a type that Spark can hash: maps and variants are converted to text."""
    column = frame[f"`{field.name}`"]
    text = field.dataType.simpleString()
    return column.cast("string") if "map<" in text or "variant" in text else column


_COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "true",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Disables Spark's commit protocol, because the ledger commits, and its checksum files, which Parquet does
not need and which would cost another fork of chmod for each file."""


def read_files(session: Any, how: dict[str, Any], declared: Schema | None) -> Any:
    """Return the frame of the files that a source's ``native`` describes, with keys and times."""
    from pyspark.sql import functions

    schema = how.get("schema") or (declared.ddl if declared is not None else None)
    reader = session.read.format(how["format"]).options(**(how.get("options") or {}))
    if how["format"] in ("csv", "json"):
        # By default Spark reads malformed values as nulls.
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
    """Let Spark write a frame into a sink's staging folder; return a name for the output, and the files.

    A ``digest`` is computed from the written rows.
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
        # Spark adds checksums, a success marker and, without rows, an empty file.
        if path.name[0] not in "._" and row_count(target["format"], [str(path)]) != 0 and path.stat().st_size:
            files.append(str(path.rename(staging / f"{task}-{number:05d}{path.suffix}")))
    shutil.rmtree(folder)
    return task, files


def row_count(format: str, paths: list[str]) -> int | None:
    """Return the number of rows in files, if it is known without reading them; else None."""
    if format != "parquet":
        return None
    from pyarrow.parquet import read_metadata

    return sum(int(read_metadata(path).num_rows) for path in paths)


def _as_sink_wants(frame: Any, target: dict[str, Any]) -> Any:
    """Return the columns of a sink's files; keys and times are included if the sink names their columns."""
    ends = {KEY: target.get("key_column"), TIME: target.get("ts_column")}
    for name, column in ends.items():
        if name in frame.columns:
            frame = frame.withColumnRenamed(name, column) if column else frame.drop(name)
    if target.get("schema"):
        others = [name for name in frame.columns if name in ends.values()]
        fields = [field for field in Schema.of(target["schema"]).fields if field.name not in others]
        frame = frame.select(*(frame[f"`{f.name}`"].cast(f.type.ddl) for f in fields), *others)
    return frame
