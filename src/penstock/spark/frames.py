"""How a vertex that Spark runs itself makes a frame of frames, and what its failures say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.columns import KEY, TIME
from penstock.engine.blueprint import VertexSpec
from penstock.errors import TaskError, trace_of
from penstock.graph.kinds import DataFrameTask, Sql

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def make_frame(session: Any, spec: VertexSpec, frames: Mapping[str, Any]) -> Any:
    """Return what a vertex makes of the frames of its input ports."""
    task = spec.operator
    if isinstance(task, Sql):
        for port, view in task.views.items():
            frames[port].createOrReplaceTempView(view)
        # The views stay: the session is ours alone, and the next batch replaces them.
        return session.sql(task.query)
    assert isinstance(task, DataFrameTask)
    return task.function(*(frames[port] for port in task.inputs))


def with_ends(frame: Any) -> Any:
    """Return a frame that has keys and times, if only empty ones."""
    names = frame.columns
    ends = [(KEY, "string"), (TIME, "double")]
    missing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in ends if name not in names]
    return frame.selectExpr("*", *missing) if missing else frame


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from printing, as JSON with a Java traceback, what we report in a sentence."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def sentence(error: BaseException) -> str:
    """Return the first lines of what Spark says, without the plan and the state code behind it.

    >>> sentence(ValueError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL =="))
    '[DIVIDE_BY_ZERO] Division by zero.'
    """
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].partition(" SQLSTATE:")[0]


def task_error(job: str, natives: Mapping[str, VertexSpec], error: Exception) -> Exception:
    """Name the vertex whose data Spark could not work on; any other failure of Spark stays what it is."""
    deepest = _deepest(error)
    if deepest is None:
        return error
    message, fragments = deepest
    owners = [
        name
        for name, spec in natives.items()
        if isinstance(spec.operator, Sql) and any(part in spec.operator.query for part in fragments)
    ] or [name for name, spec in natives.items() if not isinstance(spec.operator, Sql) or not fragments]
    vertex = " or ".join(owners or natives)
    return TaskError(job, vertex, "a row of its input", sentence(ValueError(message)), trace_of(error))


def _deepest(error: Exception) -> tuple[str, list[str]] | None:
    """Return the message of the innermost cause that is about data or user code, and the SQL it is about."""
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: tuple[str, list[str]] | None = None
    while java is not None:
        name = java.getClass().getName()
        if name.endswith("PythonException"):
            lines = [line for line in str(java.getMessage()).strip().splitlines() if line.strip()]
            return lines[-1] if lines else name, []
        if name.startswith("org.apache.spark.Spark") and hasattr(java, "getQueryContext"):
            contexts = list(java.getQueryContext() or ())
            state = str(java.getSqlState() or "")
            if contexts or state.startswith("22"):
                found = str(java.getMessage()), [context.fragment() for context in contexts]
        java = java.getCause()
    return found
