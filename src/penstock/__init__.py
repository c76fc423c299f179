"""Penstock: stream jobs in Python that run on Spark.

    import penstock as ps

    job = ps.Job("wordcount")
    lines = job.source("lines", ps.LogSource("lines"))
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    count = job.task("count", ps.Count())
    out = job.sink("counts", ps.LogSink("counts"))
    lines >> split >> count >> out

Importing this package does not import Spark; running a job does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.engine.context import ctx
from penstock.errors import (
    ConnectorError,
    CycleLimitError,
    DeliveryWarning,
    GraphError,
    IncompatibleJobError,
    JobFailedError,
    LogCorruptionError,
    LogError,
    PenstockError,
    Problem,
    SettingError,
    TaskError,
    UnstorableValueError,
)
from penstock.graph.aggregates import Distinct, Max, Mean, Min, Quantiles, TopN
from penstock.graph.ends import Rejected, Sink, SinkWriter, Source, WriteContext
from penstock.graph.job import Job
from penstock.graph.kinds import ArrowTask, DataFrameTask, Sql
from penstock.graph.on_error import Retry
from penstock.graph.partitioning import BROADCAST, ROUND_ROBIN, SAME_KEY, Partitioning
from penstock.graph.qos import QoS
from penstock.graph.record_ids import RecordIds
from penstock.graph.schema import Schema
from penstock.graph.tasks import CombiningTask, Count, Inputs, Outputs, Reduce, StatefulTask, Sum, Task
from penstock.graph.vertex import Vertex
from penstock.graph.windows import CountWindow, TimeWindow, Window, WindowValues
from penstock.parameters import params
from penstock.record import Record

if TYPE_CHECKING:
    from penstock import testing
    from penstock.connect.console import ConsoleSink
    from penstock.connect.database import DatabaseSink
    from penstock.connect.deduplicating import deduplicated
    from penstock.connect.file_sink import FileSink
    from penstock.connect.file_source import FileSource
    from penstock.connect.foreach_batch import ForeachBatchSink
    from penstock.connect.http import HttpSink
    from penstock.connect.log_ends import LogSink, LogSource
    from penstock.connect.memory import MemorySink, MemorySource
    from penstock.connect.rate import RateSource
    from penstock.connect.socket_source import SocketSource
    from penstock.connect.staged import BatchNumber
    from penstock.engine.handle import Handle
    from penstock.engine.replacement import Reconfigured
    from penstock.engine.report import Report
    from penstock.engine.side import Discarded, Failed, Late
    from penstock.log import Log
    from penstock.spark.run import run, start

__version__ = "0.1.0"

_LAZY = {
    "BatchNumber": "penstock.connect.staged",
    "ConsoleSink": "penstock.connect.console",
    "DatabaseSink": "penstock.connect.database",
    "Discarded": "penstock.engine.side",
    "Failed": "penstock.engine.side",
    "Late": "penstock.engine.side",
    "FileSink": "penstock.connect.file_sink",
    "FileSource": "penstock.connect.file_source",
    "ForeachBatchSink": "penstock.connect.foreach_batch",
    "HttpSink": "penstock.connect.http",
    "Handle": "penstock.engine.handle",
    "Log": "penstock.log",
    "LogSink": "penstock.connect.log_ends",
    "LogSource": "penstock.connect.log_ends",
    "MemorySink": "penstock.connect.memory",
    "MemorySource": "penstock.connect.memory",
    "RateSource": "penstock.connect.rate",
    "Reconfigured": "penstock.engine.replacement",
    "Report": "penstock.engine.report",
    "SocketSource": "penstock.connect.socket_source",
    "deduplicated": "penstock.connect.deduplicating",
    "run": "penstock.spark.run",
    "start": "penstock.spark.run",
}
"""Where a name comes from that is imported only when it is used."""


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("penstock.testing")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


__all__ = [
    "BROADCAST",
    "ROUND_ROBIN",
    "SAME_KEY",
    "ArrowTask",
    "BatchNumber",
    "CombiningTask",
    "ConnectorError",
    "ConsoleSink",
    "Count",
    "CountWindow",
    "CycleLimitError",
    "DataFrameTask",
    "DatabaseSink",
    "DeliveryWarning",
    "Discarded",
    "Distinct",
    "Failed",
    "FileSink",
    "FileSource",
    "ForeachBatchSink",
    "GraphError",
    "Handle",
    "HttpSink",
    "IncompatibleJobError",
    "Inputs",
    "Job",
    "JobFailedError",
    "Late",
    "Log",
    "LogCorruptionError",
    "LogError",
    "LogSink",
    "LogSource",
    "Max",
    "Mean",
    "MemorySink",
    "MemorySource",
    "Min",
    "Outputs",
    "Partitioning",
    "PenstockError",
    "Problem",
    "QoS",
    "Quantiles",
    "RateSource",
    "Reconfigured",
    "Record",
    "RecordIds",
    "Reduce",
    "Rejected",
    "Report",
    "Retry",
    "Schema",
    "SettingError",
    "Sink",
    "SinkWriter",
    "SocketSource",
    "Source",
    "Sql",
    "StatefulTask",
    "Sum",
    "Task",
    "TaskError",
    "TimeWindow",
    "TopN",
    "UnstorableValueError",
    "Vertex",
    "Window",
    "WindowValues",
    "WriteContext",
    "__version__",
    "ctx",
    "deduplicated",
    "params",
    "run",
    "start",
    "testing",
]
