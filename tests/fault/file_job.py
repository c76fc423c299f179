"""The job of the kill tests between files: one part of it runs in Spark itself, one in Python.

``FILES_IN`` and ``FILES_OUT`` name the folders.
"""

from __future__ import annotations

import os
from pathlib import Path

import penstock as ps

OUT = Path(os.environ.get("FILES_OUT", "out"))

job = ps.Job("files")
rows = job.source(
    "rows", ps.FileSource(os.environ.get("FILES_IN", "in"), "parquet", schema="n long", max_files_per_batch=2)
)
double = job.task("double", ps.Sql("SELECT n, n * 2 AS twice FROM input"))
rows >> double >> job.sink("native", ps.FileSink(OUT / "native", "parquet"))
text = job.task("text", lambda r: {"n": r.value["n"], "text": str(r.value["twice"])})
double >> text >> job.sink("python", ps.FileSink(OUT / "python", "json"))
