"""Tells failures of Spark's plumbing, which pass when the machine is free again, from all others.

Java and its Python processes find each other over local sockets, with timeouts of 10 to 60 seconds. On an
overloaded machine a process may not get to connect in time: nothing is wrong with the job then, and the same
batch is likely to succeed later.
"""

from __future__ import annotations

from collections.abc import Iterator

_SOCKET = "CANNOT_OPEN_SOCKET"
"""PySpark's condition for a socket of Java that it could not connect to."""

_NOT_CONNECTED = "a Python process of Spark did not connect to Java in time"
_NOT_STARTED = "Spark could not start a Python process"
_NOT_FETCHED = "Python could not connect to Java to fetch a result"

_SIGNS = {
    # org.apache.spark.api.python.PythonWorkerFactory
    "Python worker failed to connect back": _NOT_CONNECTED,
    "Timed out while waiting for the Python worker to connect back": _NOT_CONNECTED,
    "Python daemon failed to launch worker": _NOT_STARTED,
    "Python failed to launch worker with code": _NOT_STARTED,
    # java.net.SocketTimeoutException of a socket at which Java waits for Python
    "Accept timed out": _NOT_CONNECTED,
}

_USER_CODE = "Traceback (most recent call last)"
"""Python code that has raised on a worker: what it says is the user's, whatever words are in it."""

_DEEPEST = 20


def transient_reason(error: BaseException | None) -> str | None:
    """Return in a few words what has failed of Spark's plumbing, or None for any other failure."""
    chain = list(_chain(error))
    if any(_condition(one) == _SOCKET for one in chain):
        return _NOT_FETCHED
    texts = [_text(one) for one in chain]
    if any(_USER_CODE in text for text in texts):
        return None
    return next((reason for sign, reason in _SIGNS.items() if any(sign in text for text in texts)), None)


def text_of(error: BaseException) -> str:
    """Return all that an error and its causes say."""
    return "\n".join(text for one in _chain(error) if (text := _text(one)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it came from.

    PySpark hides that it cannot connect behind an UnboundLocalError of its own, raised while it cleans up.
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
    except Exception:  # It has none, or Java, which is asked for it, is gone.
        return None
    return condition if isinstance(condition, str) else None


def _text(error: BaseException) -> str:
    try:
        said = str(error).strip()
    except Exception:  # What an error of Java says is in Java.
        said = ""
    parts = (getattr(error, "_desc", None), getattr(error, "_stackTrace", None))
    return "\n".join(part for part in (said, *parts) if isinstance(part, str) and part)
