"""How one vertex works on a list of records. A vertex is compiled once in each worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.failure import VertexFailureError
from penstock.engine.items import to_record
from penstock.graph.tasks import FunctionTask, Inputs, Outputs, StatefulTask, Task
from penstock.record import Record

Emitted = list[tuple[str, list[Record]]]
Step = Callable[[str, list[Record]], Emitted]

_new = tuple.__new__

_PLAIN = frozenset({str, int, float, bool, bytes, dict})
"""Types whose instances are one value. Others join them, for one task, when they are first seen."""


def compile_step(index: int, vertex: VertexSpec) -> Step | None:
    """Return how a vertex turns records into records; None for ends and for keyed state."""
    operator = vertex.operator
    if isinstance(operator, FunctionTask):
        return _function_step(index, operator, vertex.outputs[0])
    if isinstance(operator, Task):
        operator.prepare(vertex.config)
        return _task_step(index, operator, vertex)
    if isinstance(operator, StatefulTask):
        operator.prepare(vertex.config)
    return None


def _function_step(index: int, task: FunctionTask, output: str) -> Step:
    function = task.function
    plain = set(_PLAIN)

    def step(port: str, records: list[Record]) -> Emitted:  # noqa: ARG001
        out: list[Record] = []
        append = out.append
        record: Record | None = None
        try:
            for record in records:
                result = function(record)
                kind = type(result)
                if kind in plain or (kind is tuple and len(result) != 2):
                    append(_new(Record, (record[0], result, record[2])))
                elif kind is tuple:
                    append(_new(Record, (result[0], result[1], record[2])))
                elif kind is Record:
                    append(result)
                elif kind is list or issubclass(kind, Iterator):
                    for item in result:
                        append(to_record(item, record[0], record[2]))
                elif result is not None:
                    # Asking whether a type is an iterator costs more than the rest of this loop.
                    plain.add(kind)
                    append(_new(Record, (record[0], result, record[2])))
        except BaseException as error:
            raise VertexFailureError(index, record, error) from error
        return [(output, out)]

    return step


def _task_step(index: int, task: Task, vertex: VertexSpec) -> Step:
    inputs = vertex.inputs
    ports = vertex.outputs

    def step(port: str, records: list[Record]) -> Emitted:
        outputs = Outputs(ports)
        record: Record | None = None
        try:
            for record in records:
                outputs._incoming = record
                by_port: dict[str, list[Record]] = {name: [] for name in inputs}
                by_port[port] = [record]
                task.execute(Inputs(by_port), outputs)
        except BaseException as error:
            raise VertexFailureError(index, record, error) from error
        return [(name, out) for name, out in outputs._emitted.items() if out]

    return step


def apply_function(function: Callable[[Record], Any], records: list[Record]) -> list[Record]:
    """Run a function task over records, outside of any job.

    >>> apply_function(lambda r: [(w, 1) for w in r.value.split()], [Record(None, "a b")])
    [Record(key='a', value=1, ts=None), Record(key='b', value=1, ts=None)]
    """
    [(_, out)] = _function_step(0, FunctionTask(function), "out")("in", records)
    return out
