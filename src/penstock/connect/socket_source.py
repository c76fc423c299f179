"""Lines from a TCP server, for experiments: received lines are lost when the job ends.

Several processes use a source, but a server sends each line only once. So the process that plans batches
holds the connection and appends received lines to a temporary log, which all other processes read.
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
_MIN_PAUSE, _MAX_PAUSE = 0.05, 2.0
_CONNECT_TIMEOUT = 5.0


class SocketSource(Source):
    """Reads lines of text from a TCP server; the time of a record is the time of its arrival.

    If the server closes the connection or does not accept one, the source reconnects; after ``patience``
    seconds without a connection the job fails. Use it only for experiments: lines that are sent while the
    source is not connected are lost, and a job with such a source starts from scratch each time.
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
                f"SocketSource: host takes the name or the IP address of a machine, not {host!r:.60}: it "
                "reads lines from a TCP connection, not from a URL"
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
        if not self._is_copy and self._log().end(0) and _is_abandoned(Path(str(self._folder))):
            self._folder = None  # its lines are those of an earlier run
        self._log()
        return {"0": 0}

    def latest(self, after: Position) -> Position:
        """Read up to the last received line. The process that plans batches opens the connection here."""
        log = self._log()
        if self._is_copy and not self._reads_only:
            if self._receiver is None:
                self._receiver = _Receiver(log, self.host, self.port)
            self._receiver.check(self.patience)
        return {"0": max(after["0"], log.end(0))}

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Return one split: a connection is one stream."""
        return [(start["0"], end["0"])] if end["0"] > start["0"] else []

    def read(self, split: Split) -> Iterator[list[Record] | Rejected]:
        """Read lines from the temporary log. Lines that are not UTF-8 are rejected."""
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
        """Return the only lane."""
        return "0"

    def lanes(self, end: Position) -> Sequence[str]:
        """Return the only lane if it has any line."""
        return ["0"] if end["0"] else []

    def lag(self, after: Position) -> int:
        """Return the number of received lines not yet read."""
        return max(0, self._log().end(0) - after["0"])

    def on_worker(self) -> SocketSource:
        """Return a source that reads received lines and never connects."""
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
            # Delete the folder together with the driver's source, or when the program ends.
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        lines = Path(self._folder) / "lines"
        if not self._reads_only:
            return Log.create(lines, exist_ok=True)
        try:
            return Log.open(lines)
        except LogNotFoundError:
            raise SettingError(
                f"SocketSource: the lines of {self.host}:{self.port} are in {self._folder} on the machine "
                "that plans the batches, which this process cannot read. Run the whole job on that machine, "
                "or append the lines to a log with a program, and read it with LogSource"
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        self._log()
        return {**self.__dict__, "_receiver": None, "_is_copy": True}


def _is_abandoned(folder: Path) -> bool:
    """Return whether no process is receiving into a folder."""
    try:
        descriptor = os.open(folder / "receiver", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


class _Receiver:
    """A daemon thread that connects, appends received lines to the log, and reconnects."""

    def __init__(self, log: Log, host: str, port: int) -> None:
        self._log = log
        self._address = (host, port)
        self._disconnected_since: float | None = time.monotonic()
        self._last_error = ""
        threading.Thread(target=self._run, name=f"penstock-socket-{port}", daemon=True).start()

    def check(self, patience: float | None) -> None:
        """Raise ``SettingError`` if there was no connection for longer than ``patience`` seconds."""
        since = self._disconnected_since
        if patience is not None and since is not None and time.monotonic() - since > patience:
            host, port = self._address
            raise SettingError(
                f"no connection to {host}:{port} for {patience:g} seconds ({self._last_error}): start the "
                f"server first, for example with `nc -lk {port}`"
            )

    def _run(self) -> None:
        folder = self._log.path.parent
        try:
            descriptor = os.open(folder / "receiver", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Two planning processes may overlap briefly; only one may connect.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            pause = _MIN_PAUSE
            while folder.exists():
                connected = self._receive_once()
                pause = _MIN_PAUSE if connected else min(_MAX_PAUSE, pause * 2)
                time.sleep(pause)
        except FileNotFoundError:
            return  # the job has ended and deleted its folder

    def _receive_once(self) -> bool:
        """Receive until the server closes the connection; return whether one could be opened."""
        try:
            connection = socket.create_connection(self._address, timeout=_CONNECT_TIMEOUT)
        except OSError as error:
            self._last_error = error.strerror or str(error)
            if self._disconnected_since is None:
                self._disconnected_since = time.monotonic()
            return False
        self._disconnected_since = None
        with connection:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                for lines in batches(connection.fileno(), _LINES):
                    self._log.append([Record(None, line.removesuffix(b"\r")) for line in lines])
            except ConnectionError as error:
                self._last_error = error.strerror or str(error)
        self._disconnected_since = time.monotonic()
        return True
