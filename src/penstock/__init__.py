"""Penstock: stream jobs in Python that run on Spark.

    import penstock as ps

    job = ps.Job("wordcount")
    lines = job.source("lines", ps.LogSource("lines"))
    split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
    count = job.task("count", ps.Count())
    out = job.sink("counts", ps.LogSink("counts"))
    lines >> split >> count >> out

Importing this package does not import Spark; running a job does. Names are imported on first use, because
every process of a cluster imports this package and most of them use none of its names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import testing
    from penstock.connect.database_sink import DatabaseSink
    from penstock.connect.driver_connectors import ConsoleSink, ForeachBatchSink, MemorySink, MemorySource
    from penstock.connect.file_sink import FileSink
    from penstock.connect.file_source import FileSource
    from penstock.connect.http_sink import HttpSink
    from penstock.connect.log_connectors import LogSink, LogSource
    from penstock.connect.rate_source import RateSource
    from penstock.connect.sink_staging import BatchNumber
    from penstock.connect.socket_source import SocketSource
    from penstock.engine.batch_context import ctx
    from penstock.engine.batch_report import Report
    from penstock.engine.driver.job_handle import Handle
    from penstock.engine.driver.query_launch import Reconfigured
    from penstock.engine.side_streams import Discarded, Failed, Late
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
    from penstock.graph.aggregations import Count, Distinct, Max, Mean, Min, Quantiles, Reduce, Sum, TopN
    from penstock.graph.connector_api import Rejected, Sink, SinkWriter, Source, WriteContext
    from penstock.graph.edge import BROADCAST, ROUND_ROBIN, SAME_KEY, Partitioning
    from penstock.graph.error_policy import Retry
    from penstock.graph.job import Job
    from penstock.graph.qos import QoS
    from penstock.graph.tasks import (
        ArrowTask,
        CombiningTask,
        DataFrameTask,
        Inputs,
        Outputs,
        Sql,
        StatefulTask,
        Task,
    )
    from penstock.graph.vertex import Vertex
    from penstock.graph.windows import CountWindow, TimeWindow, Window, WindowValues
    from penstock.job_settings import Replicas
    from penstock.log import Log
    from penstock.parameters import params
    from penstock.record import Record
    from penstock.replicas.record_ids import RecordIds, deduplicated
    from penstock.schema.record_schema import Schema
    from penstock.spark.spark_runtime import run, start

__version__ = "0.1.0"

_LAZY = {
    "ArrowTask": "penstock.graph.tasks",
    "BROADCAST": "penstock.graph.edge",
    "BatchNumber": "penstock.connect.sink_staging",
    "CombiningTask": "penstock.graph.tasks",
    "ConnectorError": "penstock.errors",
    "ConsoleSink": "penstock.connect.driver_connectors",
    "Count": "penstock.graph.aggregations",
    "CountWindow": "penstock.graph.windows",
    "CycleLimitError": "penstock.errors",
    "DataFrameTask": "penstock.graph.tasks",
    "DatabaseSink": "penstock.connect.database_sink",
    "DeliveryWarning": "penstock.errors",
    "Discarded": "penstock.engine.side_streams",
    "Distinct": "penstock.graph.aggregations",
    "Failed": "penstock.engine.side_streams",
    "FileSink": "penstock.connect.file_sink",
    "FileSource": "penstock.connect.file_source",
    "ForeachBatchSink": "penstock.connect.driver_connectors",
    "GraphError": "penstock.errors",
    "Handle": "penstock.engine.driver.job_handle",
    "HttpSink": "penstock.connect.http_sink",
    "IncompatibleJobError": "penstock.errors",
    "Inputs": "penstock.graph.tasks",
    "Job": "penstock.graph.job",
    "JobFailedError": "penstock.errors",
    "Late": "penstock.engine.side_streams",
    "Log": "penstock.log",
    "LogCorruptionError": "penstock.errors",
    "LogError": "penstock.errors",
    "LogSink": "penstock.connect.log_connectors",
    "LogSource": "penstock.connect.log_connectors",
    "Max": "penstock.graph.aggregations",
    "Mean": "penstock.graph.aggregations",
    "MemorySink": "penstock.connect.driver_connectors",
    "MemorySource": "penstock.connect.driver_connectors",
    "Min": "penstock.graph.aggregations",
    "Outputs": "penstock.graph.tasks",
    "Partitioning": "penstock.graph.edge",
    "PenstockError": "penstock.errors",
    "Problem": "penstock.errors",
    "QoS": "penstock.graph.qos",
    "Replicas": "penstock.job_settings",
    "Quantiles": "penstock.graph.aggregations",
    "ROUND_ROBIN": "penstock.graph.edge",
    "RateSource": "penstock.connect.rate_source",
    "Reconfigured": "penstock.engine.driver.query_launch",
    "Record": "penstock.record",
    "RecordIds": "penstock.replicas.record_ids",
    "Reduce": "penstock.graph.aggregations",
    "Rejected": "penstock.graph.connector_api",
    "Report": "penstock.engine.batch_report",
    "Retry": "penstock.graph.error_policy",
    "SAME_KEY": "penstock.graph.edge",
    "Schema": "penstock.schema.record_schema",
    "SettingError": "penstock.errors",
    "Sink": "penstock.graph.connector_api",
    "SinkWriter": "penstock.graph.connector_api",
    "SocketSource": "penstock.connect.socket_source",
    "Source": "penstock.graph.connector_api",
    "Sql": "penstock.graph.tasks",
    "StatefulTask": "penstock.graph.tasks",
    "Sum": "penstock.graph.aggregations",
    "Task": "penstock.graph.tasks",
    "TaskError": "penstock.errors",
    "TimeWindow": "penstock.graph.windows",
    "TopN": "penstock.graph.aggregations",
    "UnstorableValueError": "penstock.errors",
    "Vertex": "penstock.graph.vertex",
    "Window": "penstock.graph.windows",
    "WindowValues": "penstock.graph.windows",
    "WriteContext": "penstock.graph.connector_api",
    "ctx": "penstock.engine.batch_context",
    "deduplicated": "penstock.replicas.record_ids",
    "params": "penstock.parameters",
    "run": "penstock.spark.spark_runtime",
    "start": "penstock.spark.spark_runtime",
}
"""The module of each name that is imported on first use."""
_REPLACEABLE = "penstock.spark.spark_runtime"
"""Tests replace functions of this module while a process runs, so its names are looked up on each access."""


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
    "Replicas",
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
