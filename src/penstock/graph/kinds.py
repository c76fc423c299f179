"""Vertices that work on columns instead of records: Arrow functions, SQL and DataFrame functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import SettingError
from penstock.graph.ddl import read_type
from penstock.graph.tasks import DEFAULT_INPUT, DEFAULT_OUTPUT
from penstock.graph.wording import shown

_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ArrowTask:
    """A function of a ``pyarrow.RecordBatch``, which returns such batches: one, many, a table or None.

    The batch has a column for each field of the values, ``_ts`` when its records have times, and ``_key``
    when they have keys of one plain type. Columns ``_key`` and ``_ts`` of the result become the keys and
    times of its records. Without them, the records keep those of the input if there are as many of them.
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


class NativeTask:
    """A vertex that Spark runs itself, without Python: what :class:`Sql` and :class:`DataFrameTask` share.

    It sees the fields of the values as columns, and ``_key`` and ``_ts`` beside them. Its result need
    not have these two; records without them have no key and no time. ``key`` is the type that keys have
    when they come from Python.
    """

    inputs: tuple[str, ...] = (DEFAULT_INPUT,)
    outputs: tuple[str, ...] = (DEFAULT_OUTPUT,)

    def __init__(self, inputs: Sequence[str], key: str) -> None:
        self.inputs = inputs if isinstance(inputs, str) else tuple(inputs)  # type: ignore[assignment]
        self.key = key


class Sql(NativeTask):
    """A query over the records that come in, which are the view ``input``.

    With ``inputs`` each of these ports is a view of its own name.

    >>> Sql("SELECT user, amount * 2 AS amount FROM input WHERE amount > 0").views
    {'in': 'input'}
    >>> Sql("SELECT * FROM web UNION ALL SELECT * FROM shop", inputs=("web", "shop")).views
    {'web': 'web', 'shop': 'shop'}
    """

    def __init__(self, query: str, *, inputs: Sequence[str] = (DEFAULT_INPUT,), key: str = "string") -> None:
        super().__init__(inputs, key)
        self.query = query

    @property
    def views(self) -> dict[str, str]:
        """The name of the view for each port."""
        return {port: "input" if port == DEFAULT_INPUT else port for port in self.inputs}


class DataFrameTask(NativeTask):
    """A function of Spark DataFrames, one for each input port in order, that returns a DataFrame.

    It is called on the driver: once before the job starts, to see what it does, and once for each batch.

    >>> DataFrameTask(lambda frame: frame.where("amount > 0")).inputs
    ('in',)
    """

    def __init__(
        self, function: Callable[..., Any], *, inputs: Sequence[str] = (DEFAULT_INPUT,), key: str = "string"
    ) -> None:
        super().__init__(inputs, key)
        self.function = function


COLUMNAR_TASKS = (ArrowTask, NativeTask)


def columnar_task_fault(task: ArrowTask | NativeTask) -> tuple[str, str] | None:
    """Return the code and the reason of what is wrong with a vertex of such a kind, if anything is.

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
                return "bad-ports", f"a port is a view of the query, and {shown(port)} is no name for one"
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
