"""Writes lines of user code to a bounded file that all processes of an instance share.

Rotation, rate limit, truncation. It does not touch ``sys.stdout``.
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
    """Read the limits; raises SettingError.

    >>> read_output_limits({"PENSTOCK_OUTPUT_RATE": "200", "PENSTOCK_OUTPUT_SIZE": "100MB"})
    OutputLimits(rate=200, size=100000000)
    """
    default = OutputLimits()
    rate = environment.get(OUTPUT_RATE_VARIABLE, "") or str(default.rate)
    if not (rate.isascii() and rate.isdigit() and int(rate)):
        raise SettingError(
            f"{OUTPUT_RATE_VARIABLE} is {rate!r}: give a number of lines a second, such as 1000"
        )
    size = default.size
    if environment.get(OUTPUT_SIZE_VARIABLE):
        try:
            size = read_size(environment[OUTPUT_SIZE_VARIABLE])
        except SettingError as error:
            raise SettingError(f"{OUTPUT_SIZE_VARIABLE}: {error}") from error
        if size < _SMALLEST_OUTPUT:
            raise SettingError(
                f"{OUTPUT_SIZE_VARIABLE} is {environment[OUTPUT_SIZE_VARIABLE]!r}: give at least 1MB"
            )
    return OutputLimits(int(rate), size)


PARTS = 4
"""Into how many files the allowed size is divided: the one that is written, and those put aside."""


class LineFile:
    """Appends lines to a file. What goes wrong is not raised: a caller learns that a line is lost."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._part = size // PARTS
        self._descriptor = -1
        self._torn = False
        """Whether the last line was written in part: the disk was full."""

    def append(self, line: bytes) -> bool:
        """Append a line that ends with a newline; say whether it is in the file."""
        try:
            if not self._has_room(len(line)):
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

    def _has_room(self, length: int) -> bool:
        """Open the file if it is not, and put it aside if it is full; say whether there is room now."""
        if self._descriptor < 0:
            self._open()
        if self._fits(length):
            return True
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # The process that holds the lock may be paused; drop the line instead of blocking user code.
            if not try_lock(lock):
                return False
            # Another process may have put the file aside already.
            self.close()
            self._open()
            if not self._fits(length):
                self._put_aside()
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

    def _put_aside(self) -> None:
        for number in range(PARTS - 1, 0, -1):
            newer = self._path if number == 1 else self._aside(number - 1)
            if newer.exists():
                newer.replace(self._aside(number))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class RateLimit:
    """Lets ``rate`` lines a second pass, and after a pause up to ``burst`` at once; counts those that do not.

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
        self._seen: float | None = None
        self.dropped = 0
        """How many lines have not passed since somebody has set this to 0."""

    def allows(self, now: float) -> bool:
        """Say whether a line may pass at a moment, of a clock that only goes forward."""
        if self._seen is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._seen) * self._rate)
        self._seen = now
        if self._tokens < 1.0:
            self.dropped += 1
            return False
        self._tokens -= 1.0
        return True


FILE = "user.jsonl"
"""In the folder of an instance; parts put aside are beside it."""
VARIABLE = "PENSTOCK_OUTPUT"
"""The variable of the environment that tells a process where its output belongs."""
LONGEST = 8_192
"""Characters of a line that are kept."""


SECRET_MARGIN = 1_000
"""Characters behind those that are kept in which a secret is looked for: it may be cut in two otherwise."""
_BURST_SECONDS = 5
_REPORT_SECONDS = 1.0
"""How often the number of dropped lines is written while lines are being dropped."""


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
