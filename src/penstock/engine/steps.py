"""How one vertex works on a list of records. A vertex is compiled once in each worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from penstock.columns import Columns
from penstock.engine.blueprint import VertexSpec
from penstock.engine.failure import ErrorHandler, raise_failure
from penstock.engine.items import to_record
from penstock.graph.tasks import FunctionTask, Inputs, Outputs, StatefulTask, Task
from penstock.record import Record

Emitted = Sequence[tuple[str, list[Record] | Columns]]
Step = Callable[[str, list[Record], ErrorHandler], Emitted]

_new = tuple.__new__

_PLAIN = frozenset({str, int, float, bool, bytes, dict})
"""Types whose instances are one value. Others join them, for one task, when they are first seen."""


def compile_step(vertex: VertexSpec) -> Step | None:
    """Return how a vertex turns records into records; None for ends and for what keeps state by key."""
    operator = vertex.operator
    if isinstance(operator, FunctionTask):
        return _function_step(operator.function, vertex.outputs[0], takes_windows=vertex.takes_windows)
    if isinstance(operator, Task):
        operator.prepare(vertex.config)
        return None if vertex.sync else _task_step(operator, vertex)
    if isinstance(operator, StatefulTask):
        operator.prepare(vertex.config)
    return None


def _function_step(given: Callable[[Any], Any], output: str, *, takes_windows: bool = False) -> Step:
    plain = set(_PLAIN)
    function = _of_value(given) if takes_windows else given

    def step(port: str, records: list[Record], recover: ErrorHandler) -> Emitted:  # noqa: ARG001
        out: list[Record] = []
        append = out.append
        rest = iter(records)
        while True:
            record = Record()
            try:
                for record in rest:
                    result = function(record)
                    kind = type(result)
                    if kind in plain or (kind is tuple and len(result) != 2):
                        append(_new(Record, (record[0], result, record[2])))
                    elif kind is tuple:
                        append(_new(Record, (result[0], result[1], record[2])))
                    elif kind is Record:
                        append(result)
                    elif kind is list or issubclass(kind, Iterator):
                        # All items or none: an iterator may raise after it has given some.
                        out += [to_record(item, record[0], record[2]) for item in result]
                    elif result is not None:
                        # Asking whether a type is an iterator costs more than the rest of this loop.
                        plain.add(kind)
                        append(_new(Record, (record[0], result, record[2])))
            except BaseException as error:
                out += recover(record, error, partial(_again, function, record)) or ()
            else:
                return [(output, out)]

    return step


def _of_value(function: Callable[[Any], Any]) -> Callable[[Record], Any]:
    return lambda record: function(record[1])


def _again(function: Callable[[Record], Any], record: Record) -> list[Record]:
    """Call a function once more and read what it returns."""
    result = function(record)
    if result is None:
        return []
    many = type(result) is list or isinstance(result, Iterator)
    return [to_record(item, record[0], record[2]) for item in (result if many else (result,))]


def _task_step(task: Task, vertex: VertexSpec) -> Step:
    inputs = vertex.inputs
    ports = vertex.outputs

    def call(port: str, record: Record, outputs: Outputs) -> None:
        outputs._incoming = record
        by_port: dict[str, list[Record]] = {name: [] for name in inputs}
        by_port[port] = [record]
        task.execute(Inputs(by_port), outputs)

    def one_by_one(port: str, records: list[Record], recover: ErrorHandler) -> Emitted:
        """The same with what a failed call has emitted taken back."""
        outputs = Outputs(ports)
        for record in records:
            marks = {name: len(out) for name, out in outputs._emitted.items()}

            def again(record: Record = record, marks: dict[str, int] = marks) -> None:
                outputs._cut(marks)
                call(port, record, outputs)

            try:
                call(port, record, outputs)
            except BaseException as error:
                outputs._cut(marks)
                recover(record, error, again)
        return [(name, out) for name, out in outputs._emitted.items() if out]

    def step(port: str, records: list[Record], recover: ErrorHandler) -> Emitted:
        outputs = Outputs(ports)
        record = Record()
        try:
            for record in records:
                call(port, record, outputs)
        except BaseException as error:
            recover(record, error, None)
        return [(name, out) for name, out in outputs._emitted.items() if out]

    return one_by_one if vertex.policy.goes_on else step


def apply_function(function: Callable[[Record], Any], records: list[Record]) -> list[Record]:
    """Run a function task over records, outside of any job.

    >>> apply_function(lambda r: [(w, 1) for w in r.value.split()], [Record(None, "a b")])
    [Record(key='a', value=1, ts=None), Record(key='b', value=1, ts=None)]
    """
    [(_, out)] = _function_step(function, "out")("in", records, raise_failure(0))
    return cast("list[Record]", out)
