"""Filters known noise from the output of Java and PySpark, and captures Java's message if it does not start.

Output of users is not filtered.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.spark.spark_failures import is_java_lost

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress PySpark's JSON logs with Java tracebacks, because Penstock reports these errors itself."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


_NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for the last output of an ended Java process."""
_TRACEBACK = b"Traceback (most recent call last):"
_INNER_LINE_PREFIXES = (b" ", b"\n")
"""Prefixes of the inner lines of a traceback."""
_CLOSED_CONNECTION_ERRORS = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")
"""Errors that PySpark's own processes print with a traceback if Spark has ended before them."""
_NOT_CONNECTED = b"pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]"
"""The last line of a Python process that could not connect to Java in time; Java reports it and retries."""
_JAVA_START_FAILURE = b'Exception in thread "main" '
"""The prefix of Java's message if it does not start; a stack trace follows."""
_NO_JAVA = (
    b"Invalid maximum heap size",
    b"Invalid initial heap size",
    b"Error: Could not create the Java Virtual Machine",
    b"Error: A fatal exception has occurred",
)
_STACK = (b"\tat ", b"\t... ", b"Caused by: ")
_THEIR_OWN = (b"pyspark/daemon.py", b"pyspark/worker", b"python_streaming_source_runner.py")


class JavaStderr:
    """Captures Java's message about a failed start."""

    def __init__(self) -> None:
        self.died: list[bytes] = []
        self._reader: threading.Thread | None = None

    def reason(self) -> str | None:
        """Return why Java did not start, if it printed a reason. Call this after it has ended."""
        if self._reader is not None:
            self._reader.join(_TIMEOUT_SECONDS)
        if not self.died:
            return None
        line = self.died[0].decode(errors="replace").strip()
        return (
            line.removeprefix(_JAVA_START_FAILURE.decode()).partition(": ")[2]
            if self.died[0].startswith(_JAVA_START_FAILURE)
            else line
        )

    def read(self, reading: int, real: int) -> None:
        """Forward the output in another thread."""
        self._reader = threading.Thread(
            target=_forward, args=(reading, real, self.died), name="java-stderr", daemon=True
        )
        self._reader.start()


@contextmanager
def filtered_stderr() -> Iterator[JavaStderr]:
    """Redirect the standard error of processes started in the block through a filter of known noise.

    Everything else, such as the output of user code in tasks, is forwarded unchanged.
    """
    said = JavaStderr()
    reading, writing = os.pipe()
    real = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    said.read(reading, real)
    try:
        yield said
    finally:
        os.dup2(real, 2)


def _forward(reading: int, real: int, died: list[bytes]) -> None:
    with os.fdopen(reading, "rb") as stream, suppress(OSError):
        for line in without_noise(stream, died):
            os.write(real, line)


def without_noise(lines: Iterable[bytes], died: list[bytes] | None = None) -> Iterator[bytes]:
    """Drop known lines, and tracebacks of PySpark's own processes after a closed connection.

    The message of a Java that does not start is added to ``died`` instead.

    >>> said = [b"mine", b"Traceback (most recent call last):", b'  File "pyspark/daemon.py"', b"EOFError"]
    >>> list(without_noise(line + b"\\n" for line in said))
    [b'mine\\n']
    """
    traceback: list[bytes] = []
    in_stack = False
    for line in lines:
        in_stack = line.startswith((_JAVA_START_FAILURE, *_NO_JAVA)) or (in_stack and line.startswith(_STACK))
        if in_stack:
            if died is not None:
                died.append(line)
        elif line.rstrip() == _TRACEBACK:
            traceback.append(line)
        elif traceback:
            traceback.append(line)
            if not line.startswith(_INNER_LINE_PREFIXES) and _is_complete(traceback):
                if not _is_closed_connection(traceback):
                    yield from traceback
                traceback = []
        elif line.rstrip() not in _NOISE:
            yield line
    # Unfinished tracebacks come from processes that were ended while they printed.
    if _inner(traceback) and not _is_closed_connection(traceback):
        yield from traceback


def _is_complete(traceback: list[bytes]) -> bool:
    """Return whether all started tracebacks are complete: concurrent processes mix their lines."""
    return len(_ends(traceback)) >= len(traceback) - len(_inner(traceback))


def _ends(traceback: list[bytes]) -> list[bytes]:
    return [line for line in _inner(traceback) if not line.startswith(_INNER_LINE_PREFIXES)]


def _is_closed_connection(traceback: list[bytes]) -> bool:
    if all(line.startswith(_NOT_CONNECTED) for line in _ends(traceback)):
        places = [line for line in _inner(traceback) if line.lstrip().startswith(b'File "')]
        return all(b"/pyspark/" in line or b'"<frozen ' in line for line in places)
    return all(line.startswith(_CLOSED_CONNECTION_ERRORS) for line in _ends(traceback)) and _is_theirs(
        traceback
    )


def _is_theirs(traceback: list[bytes]) -> bool:
    inner = _inner(traceback)
    return bool(inner) and any(place in inner[0] for place in _THEIR_OWN)


def _inner(traceback: list[bytes]) -> list[bytes]:
    return [line for line in traceback if line.rstrip() != _TRACEBACK]


_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""The loggers that py4j uses; it adds a handler to the root logger if there is none."""
_BATCH_ERROR_PREFIX = "There was an exception while executing the Python Proxy"
"""The prefix of py4j's log of a batch's error, which the job reports itself."""


class _WithoutJavaLoss(logging.Filter):
    """Drops log records of py4j about commands without a response from Java, and about failed batches."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "py4j" not in record.pathname:
            return True
        raised = record.exc_info[1] if record.exc_info else None
        return not (is_java_lost(raised) or str(record.msg).startswith(_BATCH_ERROR_PREFIX))


_FILTER = _WithoutJavaLoss()


def keep_java_loss_quiet(context: Any) -> None:
    """Silence PySpark's threads for a context in this process when Java dies."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    server = context._accumulatorServer
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error
