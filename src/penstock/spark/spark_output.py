"""Removes known noise from what Java and PySpark print, and keeps what Java says when it does not start.

Everything users print passes through.
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


_NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
_PATIENCE = 2.0
"""Seconds to wait for the last words of a Java that has ended."""
_TRACEBACK = b"Traceback (most recent call last):"
_WITHIN = (b" ", b"\n")
"""How a line begins that is neither the first nor the last of a traceback."""
_HUNG_UP = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")
"""What PySpark's own processes print, traceback and all, when Spark has ended before them."""
_NOT_CONNECTED = b"pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]"
"""How a Python process ends that could not connect to Java in time; Java tells of it, and tries again."""
_DIED = b'Exception in thread "main" '
"""How Java begins what it says when it does not start; the rest of it is its stack."""
_NO_JAVA = (
    b"Invalid maximum heap size",
    b"Invalid initial heap size",
    b"Error: Could not create the Java Virtual Machine",
    b"Error: A fatal exception has occurred",
)
_STACK = (b"\tat ", b"\t... ", b"Caused by: ")
_THEIR_OWN = (b"pyspark/daemon.py", b"pyspark/worker", b"python_streaming_source_runner.py")


class JavaStderr:
    """What Java has said of its own end."""

    def __init__(self) -> None:
        self.died: list[bytes] = []
        self._reader: threading.Thread | None = None

    def reason(self) -> str | None:
        """Return why Java has ended before it has begun, if it has said so. Asked when it has ended."""
        if self._reader is not None:
            self._reader.join(_PATIENCE)
        if not self.died:
            return None
        line = self.died[0].decode(errors="replace").strip()
        return (
            line.removeprefix(_DIED.decode()).partition(": ")[2] if self.died[0].startswith(_DIED) else line
        )

    def read(self, reading: int, real: int) -> None:
        """Pass on what is read, in a thread of its own."""
        self._reader = threading.Thread(
            target=_pass_on, args=(reading, real, self.died), name="java-stderr", daemon=True
        )
        self._reader.start()


@contextmanager
def filtered_stderr() -> Iterator[JavaStderr]:
    """Give processes that are started within a standard error of which we drop the known noise.

    Everything else, what users print in their tasks above all, is passed on as it comes.
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


def _pass_on(reading: int, real: int, died: list[bytes]) -> None:
    with os.fdopen(reading, "rb") as stream, suppress(OSError):
        for line in without_noise(stream, died):
            os.write(real, line)


def without_noise(lines: Iterable[bytes], died: list[bytes] | None = None) -> Iterator[bytes]:
    """Drop known lines, and tracebacks of PySpark's own processes whose other end has gone.

    What Java says when it does not start goes into ``died`` instead.

    >>> said = [b"mine", b"Traceback (most recent call last):", b'  File "pyspark/daemon.py"', b"EOFError"]
    >>> list(without_noise(line + b"\\n" for line in said))
    [b'mine\\n']
    """
    traceback: list[bytes] = []
    in_stack = False
    for line in lines:
        in_stack = line.startswith((_DIED, *_NO_JAVA)) or (in_stack and line.startswith(_STACK))
        if in_stack:
            if died is not None:
                died.append(line)
        elif line.rstrip() == _TRACEBACK:
            traceback.append(line)
        elif traceback:
            traceback.append(line)
            if not line.startswith(_WITHIN) and _is_over(traceback):
                if not _is_hang_up(traceback):
                    yield from traceback
                traceback = []
        elif line.rstrip() not in _NOISE:
            yield line
    # First lines alone are those of processes which were ended while they printed.
    if _inner(traceback) and not _is_hang_up(traceback):
        yield from traceback


def _is_over(traceback: list[bytes]) -> bool:
    """Whether as many tracebacks have ended as have begun: processes that end together mix their lines."""
    return len(_ends(traceback)) >= len(traceback) - len(_inner(traceback))


def _ends(traceback: list[bytes]) -> list[bytes]:
    return [line for line in _inner(traceback) if not line.startswith(_WITHIN)]


def _is_hang_up(traceback: list[bytes]) -> bool:
    if all(line.startswith(_NOT_CONNECTED) for line in _ends(traceback)):
        places = [line for line in _inner(traceback) if line.lstrip().startswith(b'File "')]
        return all(b"/pyspark/" in line or b'"<frozen ' in line for line in places)
    return all(line.startswith(_HUNG_UP) for line in _ends(traceback)) and _is_theirs(traceback)


def _is_theirs(traceback: list[bytes]) -> bool:
    inner = _inner(traceback)
    return bool(inner) and any(place in inner[0] for place in _THEIR_OWN)


def _inner(traceback: list[bytes]) -> list[bytes]:
    return [line for line in traceback if line.rstrip() != _TRACEBACK]


_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""The loggers that py4j uses; where the root has no handler, it gives it one."""
_IN_A_BATCH = "There was an exception while executing the Python Proxy"
"""How py4j begins what it logs of an error that a batch has ended with, which the job tells itself."""


class _WithoutJavaLoss(logging.Filter):
    """Drops what py4j logs of a command that Java did not answer, and of a batch that failed by it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "py4j" not in record.pathname:
            return True
        raised = record.exc_info[1] if record.exc_info else None
        return not (is_java_lost(raised) or str(record.msg).startswith(_IN_A_BATCH))


_FILTER = _WithoutJavaLoss()


def keep_java_loss_quiet(context: Any) -> None:
    """Have what PySpark runs in this process for a context say nothing when Java dies."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    server = context._accumulatorServer
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error
