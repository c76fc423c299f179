"""What user code prints and logs, as JSON lines with node, job, vertex and level.

A supervisor tells each process that it starts where its output belongs, in one variable of the environment,
which Java and Spark's Python processes inherit. A process that runs user code then replaces ``sys.stdout``
and ``sys.stderr`` and adds a handler to the root logger. All processes of an instance share one file, whose
size is bounded; each may write so many lines a second, and the number of lines beyond that is in the file
instead of them. Without the variable, as in ``penstock run``, nothing is replaced.

User code that prints nothing pays nothing: which vertex runs is looked up when a line is written.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from penstock.line_file import LineFile, RateLimit
from penstock.redaction import SHORTEST_SECRET, is_secret_name, redact, register_secret
from penstock.running_code import running_vertex

FILE = "user.jsonl"
"""In the folder of an instance; parts put aside are beside it."""
VARIABLE = "PENSTOCK_OUTPUT"
"""The variable of the environment that tells a process where its output belongs."""
LONGEST = 8_192
"""Characters of a line that are kept."""

_LONGEST_TRACE = 4 * LONGEST
SECRET_MARGIN = 1_000
"""Characters behind those that are kept in which a secret is looked for: it may be cut in two otherwise."""
_BURST_SECONDS = 5
_REPORT_SECONDS = 1.0
"""How often the number of dropped lines is written while lines are being dropped."""
_LIBRARIES = frozenset(
    {"penstock", "kazoo", "py4j", "pyspark", "httpx", "httpcore", "asyncio", "structlog", "uvicorn"}
)
"""Packages whose log records belong into the log of the process itself."""

VertexOf = Callable[[], str | None]
"""Returns the vertex whose code runs in this thread; None if no batch runs."""


@dataclass(frozen=True)
class OutputLimits:
    """How much of what user code prints is kept."""

    rate: int = 1_000
    """Lines a second of one process; after a pause five times as many at once."""
    size: int = 16_000_000
    """Bytes of all processes of an instance together."""


@dataclass(frozen=True)
class OutputPlace:
    """Where the output of an instance's processes belongs."""

    folder: str
    node: str
    job: str
    process: str
    rate: int = OutputLimits.rate
    size: int = OutputLimits.size

    def environment(self) -> dict[str, str]:
        """Return the variables that a process is started with."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> OutputPlace | None:
        """Return what a process was started with; None if it was not by a supervisor.

        >>> place = OutputPlace("/instances/1", "node-1", "words", "worker")
        >>> OutputPlace.of_environment(place.environment()) == place
        True
        """
        given = environment.get(VARIABLE)
        return cls(**json.loads(given)) if given else None


class UserOutput:
    """Writes lines of user code to the file of an instance. May be used from any thread."""

    def __init__(
        self,
        place: OutputPlace,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._place = place
        self._file = LineFile(Path(place.folder) / FILE, place.size)
        self._limit = RateLimit(place.rate, place.rate * _BURST_SECONDS)
        self._clock = clock
        self._now = now
        self._lock = threading.RLock()
        self._reported = clock()

    def write(self, level: str, text: str, vertex: str | None, **more: str) -> None:
        """Write a line that was allowed."""
        line = self._line(level, text, vertex, more)
        with self._lock:
            if not self._file.append(line):
                self._limit.dropped += 1

    def allows(self) -> bool:
        """Say whether one more line may be written now; if not, it is counted."""
        with self._lock:
            moment = self._clock()
            allowed = self._limit.allows(moment)
            if self._limit.dropped and moment - self._reported >= _REPORT_SECONDS:
                self.report_dropped()
            return allowed

    def report_dropped(self) -> None:
        """Write how many lines have been dropped since the last time, if any."""
        with self._lock:
            count = self._limit.dropped
            self._reported = self._clock()
            if not count:
                return
            event = f"{count:,} {'line' if count == 1 else 'lines'} of output dropped"
            if self._file.append(self._line("warning", event, None, {"stream": "dropped"}, dropped=count)):
                self._limit.dropped = 0

    def _line(
        self, level: str, text: str, vertex: str | None, more: Mapping[str, str], **figures: int
    ) -> bytes:
        place = self._place
        moment = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="microseconds")
        line: dict[str, Any] = {
            "timestamp": moment.replace("+00:00", "Z"),
            "level": level,
            "event": text,
            "process": place.process,
            "pid": os.getpid(),
            "node": place.node,
            "job": place.job,
            **({"vertex": vertex} if vertex else {}),
            **more,
            **figures,
        }
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def renew_lock(self) -> None:
        """Have a lock that nobody holds: another thread may have held it when this process was forked."""
        self._lock = threading.RLock()


def shortened(text: str, longest: int, left_out: int = 0) -> str:
    """Return a text without secrets, of at most so many characters, all of which have a form in UTF-8.

    ``left_out`` is how many characters of it have been left out before.

    >>> shortened("a" * 12, 10), shortened(chr(0xDC80), 10)
    ('aaaaaaaaaa… [cut: 12 characters]', '\\\\udc80')
    """
    length = len(text) + left_out
    text = redact(text[: longest + SECRET_MARGIN])
    if length > longest:
        text = f"{text[:longest]}… [cut: {length} characters]"
    return text.encode("utf-8", "backslashreplace").decode()


def without_secrets(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a log without secrets that this process knows.

    Spark's Python processes do not know those of the cluster; who reads what user code has said does.
    """
    if "stream" not in line:
        return dict(line)
    return {name: redact(value) if isinstance(value, str) else value for name, value in line.items()}


class CapturedStream(io.TextIOBase):
    """Stands in for ``sys.stdout`` or ``sys.stderr``: what user code writes becomes lines of its output."""

    def __init__(self, output: UserOutput, name: str, original: TextIO, vertex_of: VertexOf) -> None:
        self._output = output
        self._stream = name
        self._original = original
        self._vertex_of = vertex_of
        self._partial = _Partial()

    def write(self, text: str) -> int:
        """Take text; each line is written when it is complete."""
        vertex = self._vertex_of()
        if vertex is None:
            return self._original.write(text)
        partial = self._partial
        if partial.text and partial.vertex != vertex:
            self.settle()
        head, newline, rest = text.rpartition("\n")
        if not newline:
            # The rest of a line that is too long is counted and not kept.
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

    def settle(self) -> None:
        """Write what this thread has begun of a line."""
        partial = self._partial
        whole, left_out = partial.text, partial.left_out
        partial.text, partial.left_out = "", 0
        self._line(whole, partial.vertex, left_out)

    def _line(self, text: str, vertex: str, left_out: int) -> None:
        if text and not text.isspace() and self._output.allows():
            self._output.write("info", shortened(text, LONGEST, left_out), vertex, stream=self._stream)

    def flush(self) -> None:
        """Do nothing: complete lines have been written."""

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that programs which user code starts write to: the file ``output.log``."""
        return self._original.fileno()

    def reconfigure(self, **_: Any) -> None:
        """Accept what ``sys.stdout`` accepts; lines are written as they come in any case."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the file."""
        return "utf-8"

    @property
    def buffer(self) -> _CapturedBytes:
        """What takes bytes."""
        return _CapturedBytes(self)


class _Partial(threading.local):
    """The line that a thread has begun to write."""

    text: str = ""
    vertex: str = ""
    left_out: int = 0


class _CapturedBytes(io.RawIOBase):
    """Takes bytes in place of ``sys.stdout.buffer``; those that are no UTF-8 are shown escaped."""

    def __init__(self, stream: CapturedStream) -> None:
        self._text = stream

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self._text.write(taken.decode("utf-8", "backslashreplace"))
        return len(taken)

    def writable(self) -> bool:
        return True


class OutputHandler(logging.Handler):
    """Writes the log records of user code."""

    def __init__(self, output: UserOutput, vertex_of: VertexOf) -> None:
        super().__init__()
        self._output = output
        self._vertex_of = vertex_of

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be formatted is written as what it is."""
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
    """Say whether a log record is of user code or a library of its own, and not of Penstock's."""
    return record.name.partition(".")[0] not in _LIBRARIES


_installed: list[tuple[UserOutput, CapturedStream, CapturedStream, OutputHandler]] = []
"""At most one: the output of this process."""


def capture_user_output(place: OutputPlace, vertex_of: VertexOf, *, whole: bool = True) -> None:
    """Keep what user code prints and logs in this process from now on; calling it again does nothing.

    ``whole`` is for a process that prints nothing of its own. In one of Spark's, what its main thread prints
    outside of user code goes where it always went.
    """
    if _installed:
        return
    for name, value in os.environ.items():
        # Spark's secret is there, and whatever else a user has passed on.
        if is_secret_name(name) and len(value) >= SHORTEST_SECRET:
            register_secret(value)

    def vertex() -> str | None:
        found = running_vertex()
        if not found:
            step = vertex_of()
            found = found if step is None else step
        if found is None and (whole or threading.current_thread() is not threading.main_thread()):
            return ""
        return found

    output = UserOutput(place)
    streams = [CapturedStream(output, name, getattr(sys, name), vertex) for name in ("stdout", "stderr")]
    handler = OutputHandler(output, vertex)
    if whole:
        # Of Penstock itself and its libraries there is another log.
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
    """Do so in a Python process of Spark, if a supervisor has started its Java."""
    if not _installed:
        place = OutputPlace.of_environment(os.environ)
        if place is not None:
            capture_user_output(place, vertex_of, whole=False)


def stop_user_output_capture() -> None:
    """Give the process its streams back; for tests."""
    for _, stdout, stderr, handler in _installed:
        sys.stdout, sys.stderr = stdout._original, stderr._original
        logging.getLogger().removeHandler(handler)
    _installed.clear()


def flush_partial_line() -> None:
    """Write begun lines of this thread and the number of dropped ones: a task or the process ends."""
    for output, stdout, stderr, _ in _installed:
        stdout.settle()
        stderr.settle()
        output.report_dropped()
