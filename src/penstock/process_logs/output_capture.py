"""Captures prints and log records of user code as lines of user output, each with its vertex.

The capture replaces ``sys.stdout`` and ``sys.stderr`` of a process, and adds a handler to the root logger.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from penstock.process_logs.redaction import SHORTEST_SECRET, is_secret_name, register_secret
from penstock.process_logs.user_output import (
    LONGEST,
    SECRET_MARGIN,
    OutputPlace,
    UserOutput,
    shortened,
)
from penstock.vertex_calls import running_vertex

_LONGEST_TRACE = 4 * LONGEST


_LIBRARIES = frozenset(
    {"penstock", "kazoo", "py4j", "pyspark", "httpx", "httpcore", "asyncio", "structlog", "uvicorn"}
)
"""Packages whose log records belong to the log of the process itself."""

VertexOf = Callable[[], str | None]
"""Returns the vertex whose code runs in this thread; None if no batch runs."""


class CapturedStream(io.TextIOBase):
    """Replaces ``sys.stdout`` or ``sys.stderr`` and writes the text of user code as lines of user output."""

    def __init__(self, output: UserOutput, name: str, original: TextIO, vertex_of: VertexOf) -> None:
        self._output = output
        self._stream = name
        self._original = original
        self._vertex_of = vertex_of
        self._partial = _Partial()

    def write(self, text: str) -> int:
        """Write text; each line is passed on when it is complete."""
        vertex = self._vertex_of()
        if vertex is None:
            return self._original.write(text)
        partial = self._partial
        if partial.text and partial.vertex != vertex:
            self.flush_partial()
        head, newline, rest = text.rpartition("\n")
        if not newline:
            # The rest of a line that is too long is counted, not kept.
            partial.left_out += max(0, len(partial.text) + len(rest) - LONGEST - SECRET_MARGIN)
            partial.text = (partial.text + rest)[: LONGEST + SECRET_MARGIN]
            partial.vertex = vertex
            return len(text)
        first, *others = head.split("\n")
        whole, left_out = partial.text + first, partial.left_out
        partial.text, partial.vertex, partial.left_out = rest[: LONGEST + SECRET_MARGIN], vertex, 0
        self._line(whole, vertex, left_out)
        for line in others:
            self._line(line, vertex, 0)
        return len(text)

    def flush_partial(self) -> None:
        """Write the incomplete line of this thread."""
        partial = self._partial
        whole, left_out = partial.text, partial.left_out
        partial.text, partial.left_out = "", 0
        self._line(whole, partial.vertex, left_out)

    def _line(self, text: str, vertex: str, left_out: int) -> None:
        if text and not text.isspace() and self._output.allows():
            self._output.write("info", shortened(text, LONGEST, left_out), vertex, stream=self._stream)

    def flush(self) -> None:
        """Do nothing: complete lines are already written."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the original stream, to which programs started by user code write."""
        return self._original.fileno()

    def reconfigure(self, **_: Any) -> None:
        """Accept the arguments of ``sys.stdout.reconfigure`` and ignore them."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the file."""
        return "utf-8"

    @property
    def buffer(self) -> _CapturedBytes:
        """A binary stream that writes to this one."""
        return _CapturedBytes(self)


class _Partial(threading.local):
    """The incomplete line of a thread."""

    text: str = ""
    vertex: str = ""
    left_out: int = 0


class _CapturedBytes(io.RawIOBase):
    """Replaces ``sys.stdout.buffer``; bytes that are not UTF-8 are escaped."""

    def __init__(self, stream: CapturedStream) -> None:
        self._text = stream

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._text.write(content.decode("utf-8", "backslashreplace"))
        return len(content)

    def writable(self) -> bool:
        return True


class OutputHandler(logging.Handler):
    """Writes log records of user code as lines of user output."""

    def __init__(self, output: UserOutput, vertex_of: VertexOf) -> None:
        super().__init__()
        self._output = output
        self._vertex_of = vertex_of

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be formatted is written with its unformatted message."""
        if not self._output.allows():
            return
        try:
            text = record.getMessage()
        except Exception as error:
            text = f"{record.msg!r} cannot be formatted: {type(error).__name__}"
        more = {"stream": "logging", "logger": shortened(record.name, LONGEST)}
        if record.exc_info and record.exc_info[0] is not None:
            trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            more["exception"] = shortened(trace, _LONGEST_TRACE)
        self._output.write(record.levelname.lower(), shortened(text, LONGEST), self._vertex_of(), **more)


def is_user_record(record: logging.LogRecord) -> bool:
    """Return whether a log record is from user code or its libraries, not from Penstock or its libraries."""
    return record.name.partition(".")[0] not in _LIBRARIES


_installed: list[tuple[UserOutput, CapturedStream, CapturedStream, OutputHandler]] = []
"""The active capture of this process, at most one."""


def capture_user_output(place: OutputPlace, vertex_of: VertexOf, *, whole_process: bool = True) -> None:
    """Capture prints and log records of user code in this process from now on; later calls do nothing.

    ``whole_process`` is for a process that prints nothing itself. Without it, in a process of Spark, text
    that the main thread prints outside of user code goes to the original stream.
    """
    if _installed:
        return
    for name, value in os.environ.items():
        # The environment has Spark's secret, and possibly secrets of the user.
        if is_secret_name(name) and len(value) >= SHORTEST_SECRET:
            register_secret(value)

    def vertex() -> str | None:
        found = running_vertex()
        if not found:
            step = vertex_of()
            found = found if step is None else step
        if found is None and (whole_process or threading.current_thread() is not threading.main_thread()):
            return ""
        return found

    output = UserOutput(place)
    streams = [CapturedStream(output, name, getattr(sys, name), vertex) for name in ("stdout", "stderr")]
    handler = OutputHandler(output, vertex)
    if whole_process:
        # Penstock and its libraries write to the log of the process.
        handler.addFilter(is_user_record)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in sorted(_LIBRARIES - {"penstock"}):
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.stdout, sys.stderr = streams
    os.register_at_fork(after_in_child=output.renew_lock)
    _installed.append((output, streams[0], streams[1], handler))


def capture_user_output_in_spark(vertex_of: VertexOf) -> None:
    """Capture user output in a Python process of Spark, if a supervisor has started its Java process."""
    if not _installed:
        place = OutputPlace.of_environment(os.environ)
        if place is not None:
            capture_user_output(place, vertex_of, whole_process=False)


def stop_user_output_capture() -> None:
    """Restore the streams of the process; for tests."""
    for _, stdout, stderr, handler in _installed:
        sys.stdout, sys.stderr = stdout._original, stderr._original
        logging.getLogger().removeHandler(handler)
    _installed.clear()


def flush_partial_line() -> None:
    """Write incomplete lines of this thread and the number of dropped lines: a task or the process ends."""
    for output, stdout, stderr, _ in _installed:
        stdout.flush_partial()
        stderr.flush_partial()
        output.report_dropped()
