"""Writes lines of user code to a file of limited size, shared by all processes of an instance.

With rotation, a rate limit, and truncation of long lines. ``output_capture`` replaces ``sys.stdout``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.errors import SettingError
from penstock.local_files import try_lock
from penstock.process_logs.redaction import redact
from penstock.setting_values import read_size

OUTPUT_RATE_VARIABLE = "PENSTOCK_OUTPUT_RATE"
OUTPUT_SIZE_VARIABLE = "PENSTOCK_OUTPUT_SIZE"
_SMALLEST_OUTPUT = 1_000_000


def read_output_limits(environment: Mapping[str, str]) -> OutputLimits:
    """Read the limits from the environment. Raises SettingError.

    >>> read_output_limits({"PENSTOCK_OUTPUT_RATE": "200", "PENSTOCK_OUTPUT_SIZE": "100MB"})
    OutputLimits(rate=200, size=100000000)
    """
    default = OutputLimits()
    rate = environment.get(OUTPUT_RATE_VARIABLE, "") or str(default.rate)
    if not (rate.isascii() and rate.isdigit() and int(rate)):
        raise SettingError(
            f"{OUTPUT_RATE_VARIABLE} is {rate!r}: set a number of lines a second, such as 1000"
        )
    size = default.size
    if environment.get(OUTPUT_SIZE_VARIABLE):
        try:
            size = read_size(environment[OUTPUT_SIZE_VARIABLE])
        except SettingError as error:
            raise SettingError(f"{OUTPUT_SIZE_VARIABLE}: {error}") from error
        if size < _SMALLEST_OUTPUT:
            raise SettingError(
                f"{OUTPUT_SIZE_VARIABLE} is {environment[OUTPUT_SIZE_VARIABLE]!r}: set at least 1MB"
            )
    return OutputLimits(int(rate), size)


PARTS = 4
"""The number of files that share the size limit: the current one and the rotated ones."""


class LineFile:
    """Appends lines to a file. Errors are not raised: ``append`` returns False for a lost line."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._part = size // PARTS
        self._descriptor = -1
        self._torn = False
        """Whether the last line was written incompletely because the disk was full."""

    def append(self, line: bytes) -> bool:
        """Append a line that ends with a newline; return whether it was written."""
        try:
            if not self._make_room(len(line)):
                return False
            whole = b"\n" + line if self._torn else line
            self._torn = os.write(self._descriptor, whole) < len(whole)
        except OSError:
            return False
        return not self._torn

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _make_room(self, length: int) -> bool:
        """Open the file if necessary, and rotate it if it is full; return whether the line fits now."""
        if self._descriptor < 0:
            self._open()
        if self._fits(length):
            return True
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # The process that holds the lock may be paused; drop the line instead of blocking user code.
            if not try_lock(lock):
                return False
            # Another process may have rotated the file already.
            self.close()
            self._open()
            if not self._fits(length):
                self._rotate()
                self.close()
                self._open()
        finally:
            os.close(lock)
        return self._fits(length)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _fits(self, length: int) -> bool:
        found = os.fstat(self._descriptor)
        return found.st_nlink > 0 and found.st_size + length + 1 <= self._part

    def _rotate(self) -> None:
        for number in range(PARTS - 1, 0, -1):
            newer = self._path if number == 1 else self._rotated(number - 1)
            if newer.exists():
                newer.replace(self._rotated(number))

    def _rotated(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class RateLimit:
    """Allows ``rate`` lines a second, with bursts of up to ``burst``, and counts the dropped lines.

    >>> limit = RateLimit(rate=2, burst=3)
    >>> [limit.allows(at) for at in (0.0, 0.0, 0.0, 0.0, 0.5, 0.5)]
    [True, True, True, False, True, False]
    >>> limit.dropped
    2
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_at: float | None = None
        self.dropped = 0
        """The number of dropped lines; callers reset it to 0."""

    def allows(self, now: float) -> bool:
        """Return whether a line is allowed at a time of a monotonic clock."""
        if self._updated_at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1.0:
            self.dropped += 1
            return False
        self._tokens -= 1.0
        return True


FILE = "user.jsonl"
"""The file in the folder of an instance; rotated files are beside it."""
VARIABLE = "PENSTOCK_OUTPUT"
"""The environment variable with the OutputPlace of a process."""
LONGEST = 8_192
"""Maximum characters of a line; longer lines are truncated."""


SECRET_MARGIN = 1_000
"""Further characters searched for secrets: truncation could cut a secret in two, which is then not found."""
_BURST_SECONDS = 5
_REPORT_SECONDS = 1.0
"""Minimum seconds between two reports of dropped lines."""


@dataclass(frozen=True)
class OutputLimits:
    """The limits of user output."""

    rate: int = 1_000
    """Lines a second of one process, with bursts of up to five times as many."""
    size: int = 16_000_000
    """Bytes of all processes of an instance together."""


@dataclass(frozen=True)
class OutputPlace:
    """The folder, origin and limits of the user output of an instance's processes."""

    folder: str
    node: str
    job: str
    process: str
    rate: int = OutputLimits.rate
    size: int = OutputLimits.size

    def environment(self) -> dict[str, str]:
        """Return the environment variables to start a process with."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> OutputPlace | None:
        """Return the place of a process; None if it was not started by a supervisor.

        >>> place = OutputPlace("/instances/1", "node-1", "words", "worker")
        >>> OutputPlace.of_environment(place.environment()) == place
        True
        """
        given = environment.get(VARIABLE)
        return cls(**json.loads(given)) if given else None


class UserOutput:
    """Writes lines of user code to the file of an instance. Thread-safe."""

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
        """Write a line; call ``allows`` first."""
        line = self._line(level, text, vertex, more)
        with self._lock:
            if not self._file.append(line):
                self._limit.dropped += 1

    def allows(self) -> bool:
        """Return whether another line may be written now; if not, count it as dropped."""
        with self._lock:
            moment = self._clock()
            allowed = self._limit.allows(moment)
            if self._limit.dropped and moment - self._reported >= _REPORT_SECONDS:
                self.report_dropped()
            return allowed

    def report_dropped(self) -> None:
        """Write the number of lines dropped since the last report, if any."""
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
        """Replace the lock after a fork, because another thread may have held it in the parent process."""
        self._lock = threading.RLock()


def shortened(text: str, max_length: int, left_out: int = 0) -> str:
    """Redact a text, truncate it to a number of characters, and escape lone surrogates.

    ``left_out`` is the number of characters that were dropped before.

    >>> shortened("a" * 12, 10), shortened(chr(0xDC80), 10)
    ('aaaaaaaaaa… [cut: 12 characters]', '\\\\udc80')
    """
    length = len(text) + left_out
    text = redact(text[: max_length + SECRET_MARGIN])
    if length > max_length:
        text = f"{text[:max_length]}… [cut: {length} characters]"
    return text.encode("utf-8", "backslashreplace").decode()


def without_secrets(line: Mapping[str, Any]) -> dict[str, Any]:
    """Redact a line of user output with the secrets that this process knows.

    Spark's Python processes do not know the secrets of the cluster, but the reader of their output does.
    """
    if "stream" not in line:
        return dict(line)
    return {name: redact(value) if isinstance(value, str) else value for name, value in line.items()}
