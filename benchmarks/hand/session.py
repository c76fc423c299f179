"""The Spark session of the hand-written jobs, with the settings that Penstock uses too."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

MASTER = "local[2]"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK -Xss4m",
    "spark.ui.showConsoleProgress": "false",
    # Every batch must be in the progress that is read at the end.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def open_session(extra: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process; the first call starts Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName("benchmark")
    for name, value in {**SETTINGS, "spark.pyspark.python": sys.executable, **(extra or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
