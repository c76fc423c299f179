"""The Spark session of the hand-written jobs, with the settings that Penstock uses too."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.spark.spark_settings import DEFAULTS

MASTER = "local[2]"

SETTINGS = {
    **DEFAULTS,
    "spark.sql.shuffle.partitions": "2",
    # Penstock's value is for rows of many records each; these jobs have one record a row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Every batch must be in the progress that is read at the end.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def open_session(extra: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process; the first call starts Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName("benchmark")
    for name, value in {**SETTINGS, **(extra or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
