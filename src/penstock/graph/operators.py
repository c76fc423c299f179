"""Reads the operator that a user gave for a vertex: a function, a task, a task class, a source or a sink.

Errors are recorded as faults, which validation reports later. This module must not depend on the job or on
other vertices.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, cast

from penstock.errors import SettingError, shown
from penstock.graph.connector_api import Sink, Source
from penstock.graph.tasks import (
    COLUMNAR_TASKS,
    DEFAULT_INPUT,
    DEFAULT_OUTPUT,
    ArrowTask,
    CombiningTask,
    DataFrameTask,
    FunctionTask,
    NativeTask,
    Sql,
    StatefulTask,
    Task,
)
from penstock.schema.ddl_parser import read_type
from penstock.setting_values import name_fault

_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def columnar_task_fault(task: ArrowTask | NativeTask) -> tuple[str, str] | None:
    """Return the code and the reason of a fault of a columnar task; None if it is valid.

    >>> columnar_task_fault(Sql(" "))
    ('bad-sql', 'the query is empty')
    """
    if isinstance(task, ArrowTask):
        reason = _columnar_function_fault("ArrowTask", task.function, 1)
        return ("bad-task", reason) if reason else None
    if isinstance(task, Sql):
        if not isinstance(task.query, str):
            return "bad-sql", f"the query must be text, not {shown(task.query)}"
        if not task.query.strip():
            return "bad-sql", "the query is empty"
        for port in task.inputs:
            if isinstance(port, str) and not _VIEW.fullmatch(port):
                return "bad-ports", f"each port is a view, and {shown(port)} is not valid as its name"
    if isinstance(task, DataFrameTask):
        reason = _columnar_function_fault("DataFrameTask", task.function, len(task.inputs))
        if reason:
            return "bad-task", reason
    try:
        read_type(task.key)
    except (SettingError, TypeError) as error:
        return "bad-task", f"key must be a type such as 'string' or 'long': {error}"
    return None


def _columnar_function_fault(kind: str, function: Any, inputs: int) -> str | None:
    if not callable(function):
        return f"{kind} takes a function, not {shown(function)}"
    if inspect.iscoroutinefunction(function):
        return f"{kind} takes a plain function, not an async one"
    try:
        signature = inspect.signature(function)
    except Exception:  # some built-in functions have no signature; they are taken on trust
        return None
    try:
        signature.bind(*[None] * inputs)
    except TypeError as error:
        frames = "one argument" if inputs == 1 else f"{inputs} arguments, one for each input port"
        return f"the function of {kind} must take {frames}: {error}"
    return None


TASKS = (FunctionTask, Task, StatefulTask, *COLUMNAR_TASKS)


@dataclass(frozen=True)
class Fault:
    """A fault of an operator; validation reports it with the name of the vertex."""

    code: str
    reason: str


@dataclass(frozen=True)
class Operator:
    """The operator of a vertex, and its ports."""

    runs: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    faults: tuple[Fault, ...] = ()


def read_source(given: Any) -> Operator:
    """Read the operator of a source vertex."""
    return Operator(given, (), (DEFAULT_OUTPUT,), _end_faults(given, Source, "bad-source"))


def read_sink(given: Any) -> Operator:
    """Read the operator of a sink vertex."""
    return Operator(given, (DEFAULT_INPUT,), (), _end_faults(given, Sink, "bad-sink"))


def read_task(given: Any) -> Operator:
    """Read the operator of a task vertex: a function, a task, or a task class without required arguments.

    >>> read_task(len).inputs, read_task(3).faults[0].reason
    (('in',), 'must be a function, a Task or a StatefulTask, not 3')
    """
    task, faults = given, []
    if isinstance(given, type) and issubclass(given, TASKS):
        try:
            task = cast("Any", given)()
        except Exception as error:
            faults.append(f"{given.__name__}() failed ({type(error).__name__}: {error}): give an instance")
    elif isinstance(given, type) and issubclass(given, Source | Sink):
        faults.append(f"must be a function, a Task or a StatefulTask, not {shown(given)}")
    elif not isinstance(given, TASKS):
        if callable(given):
            task = FunctionTask(given)
        else:
            faults.append(f"must be a function, a Task or a StatefulTask, not {shown(given)}")
    if faults:
        return Operator(given, (DEFAULT_INPUT,), (DEFAULT_OUTPUT,), (Fault("bad-task", faults[0]),))
    inputs, input_faults = _read_ports(task, "inputs")
    outputs, output_faults = _read_ports(task, "outputs")
    return Operator(task, inputs, outputs, (*_task_faults(task), *input_faults, *output_faults))


def _end_faults(given: Any, wanted: type, code: str) -> tuple[Fault, ...]:
    if isinstance(given, wanted):
        return ()
    name = wanted.__name__
    if isinstance(given, type) and issubclass(given, wanted):
        return (Fault(code, f"must be an instance: {given.__name__}(...), not the class"),)
    return (Fault(code, f"must be a {name}, not {shown(given)}"),)


def _task_faults(task: Any) -> list[Fault]:
    if isinstance(task, FunctionTask):
        reason = _function_fault(task)
        return [Fault("bad-task", reason)] if reason else []
    if isinstance(task, ArrowTask | NativeTask):
        fault = columnar_task_fault(task)
        return [Fault(*fault)] if fault else []
    required: dict[str, Any] = {"execute": Task}
    if isinstance(task, StatefulTask):
        required = {"update": StatefulTask}
    if isinstance(task, CombiningTask):
        required = {"lift": CombiningTask, "merge": CombiningTask}
    name = type(task).__name__
    given = task.faults if isinstance(task, CombiningTask) and isinstance(task.faults, tuple) else ()
    return [
        *(
            Fault("bad-task", f"{name} does not define {method}")
            for method, base in required.items()
            if getattr(getattr(task, method, None), "__func__", None) is getattr(base, method)
        ),
        *(Fault("bad-task", f"{name}: {reason}") for reason in given),
    ]


def _function_fault(task: FunctionTask) -> str | None:
    function = getattr(task, "function", None)
    if not callable(function):
        return f"FunctionTask must hold a function, not {shown(function)}"
    if inspect.iscoroutinefunction(function):
        return "must be a plain function, not an async one"
    try:
        signature = inspect.signature(function)
    except Exception:  # some built-in functions have no signature; they are taken on trust
        return None
    try:
        signature.bind(None)
    except TypeError as error:
        return f"the function must take one record: {error}"
    return None


def _read_ports(task: Any, side: str) -> tuple[tuple[str, ...], list[Fault]]:
    try:
        ports = getattr(task, side)
    except Exception as error:
        return (), [Fault("bad-ports", f"{side} cannot be read ({type(error).__name__}: {error})")]
    reason = _ports_fault(ports)
    if reason is not None:
        return (), [Fault("bad-ports", f"{side} {reason}")]
    return tuple(ports), []


def _ports_fault(ports: Any) -> str | None:
    if not isinstance(ports, tuple | list):
        return f"must be a tuple of port names, not {shown(ports)}"
    if not ports:
        return "must name at least one port"
    for port in ports:
        reason = name_fault(port)
        if reason is not None:
            return f"has a bad port name: {reason}"
    if len(set(ports)) != len(ports):
        return f"must name different ports, not {shown(ports)}"
    return None
