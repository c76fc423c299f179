"""The JSON document of a job's structure. It is the same in every run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingError, shown
from penstock.graph.connector_api import Sink, Source
from penstock.graph.edge import Partitioning
from penstock.graph.error_policy import Retry
from penstock.graph.qos import QoS
from penstock.graph.tasks import FunctionTask
from penstock.graph.windows import CountWindow, TimeWindow
from penstock.job_settings import Replicas
from penstock.schema.record_schema import Schema

if TYPE_CHECKING:
    from penstock.graph.job import Job
    from penstock.graph.vertex import Vertex

FORMAT = "penstock.job"
VERSION = 2

# Python refuses to convert very large integers to decimal, and JSON readers would reject them.
_LARGEST_BITS = 1024

# Spark hides the values of the same settings in its user interface.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def to_dict(job: Job) -> dict[str, Any]:
    """Return the structure of a job, which may be invalid, as plain data."""
    labels = [vertex.label for vertex in job.vertices]
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": plain(job.name),
        "mode": plain(job.mode),
        "guarantee": plain(job.guarantee),
        "durability": plain(job.durability),
        "replicas": plain(job.replicas),
        "qos": plain(job.qos),
        "max_iterations": plain(job.max_iterations),
        "parallelism": plain(job.parallelism),
        "buckets": plain(job.buckets),
        "interval": plain(job.interval),
        "on_error": plain(job.on_error),
        "spark": _without_secrets(plain(job.spark)),
        "vertices": [_vertex(vertex) for vertex in job.vertices],
        "edges": [
            {
                "source": labels[edge.source],
                "source_port": edge.source_port,
                "target": labels[edge.target],
                "target_port": edge.target_port,
                "by": plain(edge.by),
            }
            for edge in job.edges
        ],
    }


def to_json(job: Job) -> str:
    """Return the structure of a job as JSON."""
    return json.dumps(to_dict(job), indent=2, sort_keys=True, allow_nan=False)


def _vertex(vertex: Vertex) -> dict[str, Any]:
    operator = vertex.operator
    return {
        "name": plain(vertex.name),
        "kind": vertex.kind,
        "operator": operator_name(operator),
        "inputs": list(vertex.inputs),
        "outputs": list(vertex.outputs),
        "parallelism": plain(vertex.parallelism),
        "max_iterations": plain(vertex.max_iterations),
        "qos": plain(vertex.qos),
        "stateful": vertex.stateful,
        "sync": plain(vertex.alignment),
        "window": plain(vertex.window),
        "on_error": plain(vertex.on_error),
        "schema": _schema(vertex.schema),
        "options": plain(operator.describe()) if isinstance(operator, Source | Sink) else {},
        **({"replicable": bool(operator.replicable)} if isinstance(operator, Source) else {}),
    }


def _schema(given: Any) -> Any:
    try:
        return None if given is None else Schema.of(given).ddl
    except SettingError:
        return plain(given)


def operator_name(operator: Any) -> str:
    """Return where the code of an operator is defined.

    >>> operator_name(FunctionTask(json.dumps)), operator_name(FunctionTask(partial(json.dumps, indent=1)))
    ('json.dumps', 'functools.partial(json.dumps)')
    """
    code = operator.function if isinstance(operator, FunctionTask) else operator
    if isinstance(code, partial):
        return f"functools.partial({operator_name(FunctionTask(code.func))})"
    if not isinstance(operator, FunctionTask) or not hasattr(code, "__qualname__"):
        code = type(code)
    module = getattr(code, "__module__", None)
    return f"{module}.{code.__qualname__}" if module else str(code.__qualname__)


def plain(value: Any) -> Any:
    """Return a value as JSON data; other objects become text without a memory address.

    >>> plain({1: (2.5, float("nan"))}), plain(object())
    ({'1': [2.5, 'nan']}, '<object>')
    """
    if isinstance(value, QoS | Replicas):
        value = asdict(value)
    elif isinstance(value, Partitioning):
        value = value.value
    elif isinstance(value, TimeWindow | CountWindow):
        value = value.to_dict()
    elif isinstance(value, Retry):
        value = asdict(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _LARGEST_BITS else shown(value)
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else shown(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return shown(value)


def _without_secrets(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {name: "(hidden)" if _SECRET.search(name) else value for name, value in settings.items()}
