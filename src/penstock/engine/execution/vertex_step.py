"""The compiled step of one vertex.

It calls user code, converts its results to records, and handles errors. A step is compiled once in each
worker process. After an error, the call is repeated, or the record is discarded or fails the job, according
to the vertex's error policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from penstock.columns import Columns, batches_of
from penstock.engine.blueprint import VertexSpec
from penstock.errors import TaskError, cause_of, shorten, trace_of
from penstock.graph.error_policy import ErrorPolicy
from penstock.graph.tasks import ArrowTask, FunctionTask, Inputs, Outputs, StatefulTask, Task
from penstock.record import Record

ErrorHandler = Callable[[Record, BaseException, "Callable[[], Any] | None"], Any]
"""Takes a record, the error and a function that calls again. Returns the result of a successful repetition,
or None if the job continues without the record; raises VertexFailureError if the job must fail."""


class VertexFailureError(Exception):
    """A vertex failed inside a worker; the cause is chained."""

    def __init__(self, vertex: int, record: Record | None, cause: BaseException) -> None:
        super().__init__(f"vertex {vertex}")
        self.vertex = vertex
        self.record = record
        self.cause = cause

    def explain(self, job: str, vertex: str) -> TaskError:
        """Return the error for the user. It consists of plain text, so that it can always be pickled."""
        record = "its input" if self.record is None else shorten(self.record)
        return TaskError(job, vertex, record, cause_of(self.cause), trace_of(self.cause))


def message_of(error: BaseException) -> str:
    """Return the message of an error, even if its ``__str__`` raises."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


def retry(policy: ErrorPolicy, error: BaseException, again: Callable[[], Any] | None) -> Any:
    """Repeat a call as often as a policy permits; raises the last error if all repetitions fail."""
    delay = policy.delay
    if again is not None and isinstance(error, Exception):
        for _ in range(policy.retries):
            time.sleep(delay)
            delay *= 2
            try:
                return again()
            except Exception as latest:
                error = latest
    raise error


def raise_failure(vertex: int) -> ErrorHandler:
    """Return the error handler of a vertex that neither repeats calls nor continues."""

    def recover(record: Record, error: BaseException, again: Any) -> Any:  # noqa: ARG001
        raise VertexFailureError(vertex, record, error) from error

    return recover


_new_record = tuple.__new__
"""Creates a record without the cost of a Python-level constructor."""


def emit(result: Any, key: Any, ts: float | None, append: Callable[[Record], None]) -> None:
    """Append the records of a result: nothing, one item, or a list or iterator of items.

    An item is a record, a ``(key, value)`` pair, or a value that keeps the incoming key.

    >>> out = []
    >>> emit([("b", 1), "bare", Record("c", 2, 5.0)], "a", None, out.append)
    >>> [tuple(record) for record in out]
    [('b', 1, None), ('a', 'bare', None), ('c', 2, 5.0)]
    """
    if result is None:
        return
    if type(result) is list or isinstance(result, Iterator):
        for item in result:
            append(to_record(item, key, ts))
    else:
        append(to_record(result, key, ts))


def to_record(item: Any, key: Any, ts: float | None) -> Record:
    """Convert one emitted item to a record."""
    kind = type(item)
    if kind is tuple and len(item) == 2:
        return _new_record(Record, (item[0], item[1], ts))
    if kind is Record:
        return item  # type: ignore[no-any-return]
    return _new_record(Record, (key, item, ts))


ArrowStep = Callable[[Columns], list[Columns]]


def arrow_step(task: ArrowTask) -> ArrowStep:
    """Return the step of an Arrow task, from columns to columns."""
    function: Callable[[Any], Any] = task.function
    return lambda given: [given.with_result(batch) for batch in batches_of(function(given.to_batch()))]


Emitted = Sequence[tuple[str, list[Record] | Columns]]
Step = Callable[[str, list[Record], ErrorHandler], Emitted]

_new = tuple.__new__

_PLAIN = frozenset({str, int, float, bool, bytes, dict})
"""Types whose instances are single values. Each step adds further types when it first sees them."""


def compile_step(vertex: VertexSpec) -> Step | None:
    """Return the step of a vertex, from records to records; None for sources, sinks and stateful tasks."""
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
                        # Emit all items or none: an iterator may raise after some items.
                        out += [to_record(item, record[0], record[2]) for item in result]
                    elif result is not None:
                        # Checking whether a type is an iterator costs more than the rest of this loop.
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
    """Call a function again and convert its result to records."""
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
        """Call record by record; removes what a failed call has emitted."""
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
