"""Classification of Spark's failures.

The Java process has ended, a connection timed out and a retry may help, or a vertex in Spark has invalid
data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.errors import TaskError, trace_of
from penstock.graph.tasks import Sql

JAVA_LOST = "Spark's Java process no longer responds"


_CALL_FAILED = "An error occurred while calling"


def is_java_lost(error: BaseException | None) -> bool:
    """Return whether an error means that the Java process has ended, so that retries are useless."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionRefusedError | ConnectionResetError)


def has_java_ended(error: BaseException | None) -> bool:
    """Return whether an error came from the end of the Java process.

    If the connection of a call breaks, py4j logs the reason and raises an error with the name of the call
    only. Java is asked then: a broken connection alone does not mean that it has ended.
    """
    from pyspark import SparkContext

    if is_java_lost(error):
        return True
    gateway = SparkContext._gateway
    return _is_unanswered(error) and (gateway is None or not is_java_answering(gateway))


def _is_unanswered(error: BaseException | None) -> bool:
    from py4j.protocol import Py4JError

    # The messages of other errors of py4j are read from the Java process, which may have ended.
    if type(error) is not Py4JError:
        return False
    told = str(error)
    return told.startswith(_CALL_FAILED) and "Trace:" not in told


def is_java_answering(gateway: Any) -> bool:
    """Return whether the Java process at the other end of a gateway responds.

    If it is killed, its connections end before the process itself does.
    """
    try:
        gateway.jvm.System.nanoTime()
    except Exception as error:
        if is_java_lost(error):
            return False
        raise
    return True


_SOCKET = "CANNOT_OPEN_SOCKET"
"""PySpark's error condition for a failed connection to Java."""

_NOT_CONNECTED = "a Python process of Spark did not connect to Java in time"
_NOT_STARTED = "Spark could not start a Python process"
_NOT_FETCHED = "Python could not connect to Java to fetch a result"

_SIGNS = {
    # org.apache.spark.api.python.PythonWorkerFactory
    "Python worker failed to connect back": _NOT_CONNECTED,
    "Timed out while waiting for the Python worker to connect back": _NOT_CONNECTED,
    "Python daemon failed to launch worker": _NOT_STARTED,
    "Python failed to launch worker with code": _NOT_STARTED,
    # java.net.SocketTimeoutException of a socket on which Java waits for Python
    "Accept timed out": _NOT_CONNECTED,
}

_USER_CODE = "Traceback (most recent call last)"
"""Marks an exception of Python code on a worker: its text comes from user code and must not be matched."""

_DEEPEST = 20


def transient_reason(error: BaseException | None) -> str | None:
    """Return a description of a failed connection between Spark's processes; None for any other failure."""
    chain = list(_chain(error))
    if any(_condition(one) == _SOCKET for one in chain):
        return _NOT_FETCHED
    texts = [_text(one) for one in chain]
    if any(_USER_CODE in text for text in texts):
        return None
    return next((reason for sign, reason in _SIGNS.items() if any(sign in text for text in texts)), None)


def text_of(error: BaseException) -> str:
    """Return the text of an error and its causes."""
    return "\n".join(text for one in _chain(error) if (text := _text(one)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes.

    PySpark hides a failed connection behind an UnboundLocalError raised during its cleanup.
    """
    for _ in range(_DEEPEST):
        if error is None:
            return
        yield error
        captured = getattr(error, "_cause", None)
        error = captured if isinstance(captured, BaseException) else error.__cause__ or error.__context__


def _condition(error: BaseException) -> str | None:
    try:
        condition = error.getCondition()  # type: ignore[attr-defined]
    except Exception:  # It has none, or the Java process that it asks has ended.
        return None
    return condition if isinstance(condition, str) else None


def _text(error: BaseException) -> str:
    said = message_of(error)
    parts = (getattr(error, "_desc", None), getattr(error, "_stackTrace", None))
    return "\n".join(part for part in (said, *parts) if isinstance(part, str) and part)


def message_of(error: BaseException) -> str:
    """Return the message of an error; "" if it can no longer be read from the Java process."""
    try:
        return str(error).strip()
    except Exception:
        return ""


def sentence(error: BaseException) -> str:
    """Return the first lines of Spark's message, without the query plan and the state code that follow.

    >>> sentence(ValueError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== SQL =="))
    '[DIVIDE_BY_ZERO] Division by zero.'
    """
    text = message_of(error) or type(error).__name__
    return text.splitlines()[0].partition(" SQLSTATE:")[0]


def task_error(job: str, natives: Mapping[str, VertexSpec], error: Exception) -> Exception:
    """Return a TaskError that names the vertex with invalid data; any other failure is returned unchanged."""
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
    """Return the message and the SQL of the innermost cause that concerns data or user code."""
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
