"""Penstock: stream jobs in Python that run on Spark.

    import penstock as ps

    job = ps.Job("wordcount")
    lines = job.source("lines", ps.LogSource("lines"))
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    count = job.task("count", ps.Count())
    out = job.sink("counts", ps.LogSink("counts"))
    lines >> split >> count >> out

Importing this package does not import Spark; running a job does. Every process of a cluster imports it, and
most of them use none of these names: each is imported when it is used first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from penstock.engine.context import ctx
    from penstock.engine.handle import Handle
    from penstock.engine.replacement import Reconfigured
    from penstock.engine.report import Report
    from penstock.engine.side import Discarded, Failed, Late
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
    from penstock.log import Log
    from penstock.parameters import params
    from penstock.record import Record
    from penstock.spark.run import run, start

__version__ = "0.1.0"

_LAZY = {
    "ArrowTask": "penstock.graph.kinds",
    "BROADCAST": "penstock.graph.partitioning",
    "BatchNumber": "penstock.connect.staged",
    "CombiningTask": "penstock.graph.tasks",
    "ConnectorError": "penstock.errors",
    "ConsoleSink": "penstock.connect.console",
    "Count": "penstock.graph.tasks",
    "CountWindow": "penstock.graph.windows",
    "CycleLimitError": "penstock.errors",
    "DataFrameTask": "penstock.graph.kinds",
    "DatabaseSink": "penstock.connect.database",
    "DeliveryWarning": "penstock.errors",
    "Discarded": "penstock.engine.side",
    "Distinct": "penstock.graph.aggregates",
    "Failed": "penstock.engine.side",
    "FileSink": "penstock.connect.file_sink",
    "FileSource": "penstock.connect.file_source",
    "ForeachBatchSink": "penstock.connect.foreach_batch",
    "GraphError": "penstock.errors",
    "Handle": "penstock.engine.handle",
    "HttpSink": "penstock.connect.http",
    "IncompatibleJobError": "penstock.errors",
    "Inputs": "penstock.graph.tasks",
    "Job": "penstock.graph.job",
    "JobFailedError": "penstock.errors",
    "Late": "penstock.engine.side",
    "Log": "penstock.log",
    "LogCorruptionError": "penstock.errors",
    "LogError": "penstock.errors",
    "LogSink": "penstock.connect.log_ends",
    "LogSource": "penstock.connect.log_ends",
    "Max": "penstock.graph.aggregates",
    "Mean": "penstock.graph.aggregates",
    "MemorySink": "penstock.connect.memory",
    "MemorySource": "penstock.connect.memory",
    "Min": "penstock.graph.aggregates",
    "Outputs": "penstock.graph.tasks",
    "Partitioning": "penstock.graph.partitioning",
    "PenstockError": "penstock.errors",
    "Problem": "penstock.errors",
    "QoS": "penstock.graph.qos",
    "Quantiles": "penstock.graph.aggregates",
    "ROUND_ROBIN": "penstock.graph.partitioning",
    "RateSource": "penstock.connect.rate",
    "Reconfigured": "penstock.engine.replacement",
    "Record": "penstock.record",
    "RecordIds": "penstock.graph.record_ids",
    "Reduce": "penstock.graph.tasks",
    "Rejected": "penstock.graph.ends",
    "Report": "penstock.engine.report",
    "Retry": "penstock.graph.on_error",
    "SAME_KEY": "penstock.graph.partitioning",
    "Schema": "penstock.graph.schema",
    "SettingError": "penstock.errors",
    "Sink": "penstock.graph.ends",
    "SinkWriter": "penstock.graph.ends",
    "SocketSource": "penstock.connect.socket_source",
    "Source": "penstock.graph.ends",
    "Sql": "penstock.graph.kinds",
    "StatefulTask": "penstock.graph.tasks",
    "Sum": "penstock.graph.tasks",
    "Task": "penstock.graph.tasks",
    "TaskError": "penstock.errors",
    "TimeWindow": "penstock.graph.windows",
    "TopN": "penstock.graph.aggregates",
    "UnstorableValueError": "penstock.errors",
    "Vertex": "penstock.graph.vertex",
    "Window": "penstock.graph.windows",
    "WindowValues": "penstock.graph.windows",
    "WriteContext": "penstock.graph.ends",
    "ctx": "penstock.engine.context",
    "deduplicated": "penstock.connect.deduplicating",
    "params": "penstock.parameters",
    "run": "penstock.spark.run",
    "start": "penstock.spark.run",
}
"""Where a name comes from that is imported only when it is used."""
_REPLACEABLE = "penstock.spark.run"
"""What is called there may be replaced while a process runs, so these names are looked up each time."""


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("penstock.testing")
    if name not in _LAZY:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    found = getattr(import_module(_LAZY[name]), name)
    if _LAZY[name] != _REPLACEABLE:
        globals()[name] = found  # Tasks may use ps.ctx or ps.Record for each record.
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
