"""Lines from a TCP server, for experiments: received lines are lost when the job ends.

Several processes ask a source for its position, and a server sends each line once. So one of them, the one
that plans batches, holds the connection and appends what comes to a temporary log; all others read there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock import setting_values
from penstock.connect.line_input import batches
from penstock.errors import LogNotFoundError, SettingError
from penstock.graph.connector_api import Position, Rejected, Source, Split
from penstock.local_files import try_lock
from penstock.log import Log
from penstock.record import Record

_LINES = 4096
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CONNECT = 5.0


class SocketSource(Source):
    """Reads lines of text that a TCP server sends; the time of a record is when it came.

    When the server hangs up, or is not there yet, it is tried again, for ``patience`` seconds in a row.
    Not for results that matter: lines that are sent while nobody listens are lost, and a job with such a
    source starts anew each time.
    """

    durable = False
    replicable = False
    not_replicable = (
        "a server sends each line to one process only: append the lines to a log, and read it with LogSource"
    )

    def __init__(self, host: str = "127.0.0.1", port: int = 9999, *, patience: float | None = 60.0) -> None:
        setting_values.check_text("SocketSource", "host", host)
        if "/" in host:
            raise SettingError(
                f"SocketSource: host takes the name or the number of a machine, not {host!r:.60}: it reads "
                "lines from a TCP connection and takes no URL"
            )
        setting_values.check_whole_number("SocketSource", "port", port)
        if port > 65_535:
            raise SettingError(f"SocketSource: port takes a number up to 65535, not {port}")
        setting_values.check_seconds("SocketSource", "patience", patience, optional=True)
        self.host, self.port = host, port
        self.patience = patience
        self._folder: str | None = None
        self._receiver: _Receiver | None = None
        self._is_copy = False
        self._reads_only = False

    def begin(self) -> Position:
        """Start with the first line of this run."""
        if not self._is_copy and self._log().end(0) and _is_left(Path(str(self._folder))):
            self._folder = None  # its lines are those of a run before this one
        self._log()
        return {"0": 0}

    def latest(self, after: Position) -> Position:
        """Read up to the last line that has come. Who plans the batches begins to listen here."""
        log = self._log()
        if self._is_copy and not self._reads_only:
            if self._receiver is None:
                self._receiver = _Receiver(log, self.host, self.port)
            self._receiver.check(self.patience)
        return {"0": max(after["0"], log.end(0))}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Make one part: a connection is one stream."""
        return [(start["0"], end["0"])] if end["0"] > start["0"] else []

    def read(self, split: Split) -> Iterator[list[Record] | Rejected]:
        """Read lines from the temporary log. What is not UTF-8 is rejected."""
        for records in self._log().read(0, *split):
            lines: list[Record] = []
            pieces: list[tuple[Any, str]] = []
            for _, raw, ts in records:
                try:
                    lines.append(Record(None, raw.decode(), ts))
                except UnicodeDecodeError:
                    pieces.append((raw, f"{self.host}:{self.port}: a line that is not UTF-8"))
            if lines:
                yield lines
            if pieces:
                yield Rejected(pieces)

    def records_in(self, split: Split) -> int:
        """Return the number of lines."""
        return int(split[1]) - int(split[0])

    def lane(self, split: Split) -> str:  # noqa: ARG002
        """Return the one lane."""
        return "0"

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the one lane once it has a line."""
        return ["0"] if end["0"] else []

    def lag(self, after: Position) -> int:
        """Return how many lines have come and are not read."""
        return max(0, self._log().end(0) - after["0"])

    def on_worker(self) -> SocketSource:
        """Return a source that reads what has come and never listens."""
        worker = SocketSource(self.host, self.port, patience=self.patience)
        self._log()
        worker._folder, worker._is_copy, worker._reads_only = self._folder, True, True
        return worker

    def describe(self) -> dict[str, Any]:
        """Return where the lines come from."""
        return {"host": self.host, "port": self.port}

    def _log(self) -> Log:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="penstock-socket-")
            # With the source of the driver goes the folder, at the latest when the program ends.
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        lines = Path(self._folder) / "lines"
        if not self._reads_only:
            return Log.create(lines, exist_ok=True)
        try:
            return Log.open(lines)
        except LogNotFoundError:
            raise SettingError(
                f"SocketSource: the lines of {self.host}:{self.port} are in {self._folder} on the machine "
                "that plans the batches, and this process does not see them. Run the whole job on that "
                "machine, or append the lines to a log with a program, and read it with LogSource"
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        self._log()
        return {**self.__dict__, "_receiver": None, "_is_copy": True}


def _is_left(folder: Path) -> bool:
    """Return whether no process receives into a folder any longer."""
    try:
        descriptor = os.open(folder / "receiver", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


class _Receiver:
    """A thread that connects, appends what comes and connects again. It dies with its process."""

    def __init__(self, log: Log, host: str, port: int) -> None:
        self._log = log
        self._address = (host, port)
        self._alone_since: float | None = time.monotonic()
        self._says = ""
        threading.Thread(target=self._run, name=f"penstock-socket-{port}", daemon=True).start()

    def check(self, patience: float | None) -> None:
        """Raise when there was no connection for longer than patience lasts."""
        since = self._alone_since
        if patience is not None and since is not None and time.monotonic() - since > patience:
            host, port = self._address
            raise SettingError(
                f"no connection to {host}:{port} for {patience:g} seconds ({self._says}): start the server "
                f"first, for example with `nc -lk {port}`"
            )

    def _run(self) -> None:
        folder = self._log.path.parent
        try:
            descriptor = os.open(folder / "receiver", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Two planners may live side by side for a moment; only one may listen.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            pause = _FIRST_PAUSE
            while folder.exists():
                came = self._receive_once()
                pause = _FIRST_PAUSE if came else min(_LONGEST_PAUSE, pause * 2)
                time.sleep(pause)
        except FileNotFoundError:
            return  # the job has ended and taken its folder along

    def _receive_once(self) -> bool:
        """Receive until the server hangs up; whether there was one."""
        try:
            connection = socket.create_connection(self._address, timeout=_CONNECT)
        except OSError as error:
            self._says = error.strerror or str(error)
            if self._alone_since is None:
                self._alone_since = time.monotonic()
            return False
        self._alone_since = None
        with connection:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                for lines in batches(connection.fileno(), _LINES):
                    self._log.append([Record(None, line.removesuffix(b"\r")) for line in lines])
            except ConnectionError as error:
                self._says = error.strerror or str(error)
        self._alone_since = time.monotonic()
        return True
