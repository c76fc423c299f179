"""The way to a supervisor's store of snapshots: sends them and fetches them, and moves no byte twice.

A store is asked once which objects of a snapshot it lacks, and how much of each it has. What was interrupted
goes on there, whoever was interrupted: the files here and there are all that is remembered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import BinaryIO
from urllib.parse import quote

from penstock.snapshots import fetching
from penstock.snapshots.connection import Connection
from penstock.snapshots.errors import TransferError, TransferStoppedError
from penstock.snapshots.framing import SMALL, frame, packs
from penstock.snapshots.manifest import Manifest, ManifestError, SnapshotError, SnapshotFile
from penstock.snapshots.rate import TokenBucket
from penstock.snapshots.store import Listed

_ROUNDS = 3
_ASKED = 20_000
"""Objects in one question."""


@dataclass(frozen=True)
class Sent:
    """A snapshot that a store has whole now."""

    number: int
    """Which the store gave it."""
    bytes_sent: int
    """In the bodies of all requests, the manifest's included."""
    objects: int
    """Those that had to be sent."""


class SnapshotClient:
    """Talks to the store of one supervisor, at most at ``rate`` bytes a second; ``token`` is the node token.

    It makes a connection when it is used first. It is for one thread at a time.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        rate: float | None = None,
        timeout: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url
        self._connection = Connection(url, token, timeout)
        self._bucket = TokenBucket(rate, clock=clock, sleep=sleep)
        self.fetched = 0
        """Bytes of objects that have ever come."""
        self._there: set[str] = set()
        """The objects of the snapshot that the store has kept last: it need not be asked for them."""

    def send(
        self, manifest: Manifest, open_piece: Callable[[SnapshotFile], BinaryIO], stop: Event | None = None
    ) -> Sent:
        """Send what the store lacks of a snapshot, and have it count.

        ``open_piece`` opens a file of it for reading. Raises TransferError, TransferStoppedError when
        ``stop`` is set meanwhile, and what ``open_piece`` raises. After each of these it can be called
        again, and goes on.
        """
        before = self._connection.sent
        pieces = {piece.sha256: piece for piece in manifest.pieces}
        objects = 0
        for attempt in range(_ROUNDS):
            asked = [piece for name, piece in sorted(pieces.items()) if name not in self._there]
            lacking = self._missing(manifest.job, asked)
            self._send_small(manifest.job, [pieces[name] for name in lacking], open_piece, stop)
            for name, offset in sorted(lacking.items()):
                if pieces[name].size > SMALL:
                    self._send_large(manifest.job, pieces[name], offset, open_piece, stop)
            objects += len(lacking)
            go_on(stop)
            try:
                number = self._commit(manifest)
            except TransferError as error:
                self._there.clear()
                if error.status != 409 or attempt == _ROUNDS - 1:
                    raise
                continue
            self._there = set(pieces)
            break
        return Sent(number, self._connection.sent - before, objects)

    def fetch(self, job: str, manifest: Manifest, into: Path, stop: Event | None = None) -> int:
        """Fetch a snapshot's objects into a folder, each under its SHA-256; return how many bytes came.

        What is there already is not fetched again; what is there in part (``.part``) is continued. Raises
        SnapshotMissingError or SnapshotDamagedError when the store does not have it whole, TransferError,
        and TransferStoppedError.
        """
        fetch = fetching.Fetch(self._connection, _base(job), into, self._bucket, lambda: go_on(stop))
        try:
            fetch.run(manifest.pieces)
        finally:
            self.fetched += fetch.moved
        return fetch.moved

    def manifests(self, job: str, *, before: int | None = None, limit: int | None = None) -> Listed:
        """Return the snapshots that the store has, as SnapshotStore.manifests does. Raises TransferError."""
        asked = {"before": before, "limit": limit}
        query = "&".join(f"{name}={number}" for name, number in asked.items() if number is not None)
        answer = self._connection.ask("GET", f"{_base(job)}/manifests" + (f"?{query}" if query else ""))
        try:
            manifests, damaged = answer["manifests"], [str(reason) for reason in answer["damaged"]]
            read = tuple(Manifest.from_json(text.encode()) for text in manifests)
        except (TypeError, KeyError, AttributeError, ManifestError) as error:
            raise TransferError(f"{self.url} answered no list of snapshots: {error}", again=False) from None
        return Listed(read, tuple(damaged))

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Have a job's snapshots removed, unless a later worker has sent one. Raises TransferError."""
        self._there.clear()
        self._connection.ask("DELETE", f"{_base(job)}?revision={revision}&attempt={attempt}")

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> SnapshotClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _missing(self, job: str, pieces: list[SnapshotFile]) -> dict[str, int]:
        lacking: dict[str, int] = {}
        for first in range(0, len(pieces), _ASKED):
            sizes = {piece.sha256: piece.size for piece in pieces[first : first + _ASKED]}
            answer = self._connection.ask("POST", f"{_base(job)}/missing", {"objects": sizes})
            found = answer.get("missing") if isinstance(answer, dict) else None
            if not isinstance(found, dict):
                raise TransferError(f"{self.url} did not answer what it lacks", again=False)
            lacking |= {name: _offset(offset, sizes[name]) for name, offset in found.items() if name in sizes}
        return lacking

    def _commit(self, manifest: Manifest) -> int:
        answer = self._connection.ask(
            "POST", f"{_base(manifest.job)}/manifests", {"manifest": manifest.to_json().decode()}
        )
        number = answer.get("number") if isinstance(answer, dict) else None
        if type(number) is not int:
            raise TransferError(f"{self.url} did not answer which number it gave the snapshot", again=False)
        return number

    def _send_small(
        self,
        job: str,
        lacking: list[SnapshotFile],
        open_piece: Callable[[SnapshotFile], BinaryIO],
        stop: Event | None,
    ) -> None:
        for pack in packs(piece for piece in lacking if piece.size <= SMALL):
            content = b"".join(frame(piece.sha256, _read(piece, open_piece)) for piece in pack)
            blocks = self._paced(iter([content]), stop)
            self._put("POST", f"{_base(job)}/objects", len(content), blocks)

    def _send_large(
        self,
        job: str,
        piece: SnapshotFile,
        offset: int,
        open_piece: Callable[[SnapshotFile], BinaryIO],
        stop: Event | None,
    ) -> None:
        with open_piece(piece) as file:
            file.seek(offset)
            path = f"{_base(job)}/objects/{piece.sha256}?offset={offset}&size={piece.size}"
            blocks = self._paced(_blocks(file, piece, offset), stop)
            self._put("PUT", path, piece.size - offset, blocks)

    def _put(self, method: str, path: str, length: int, blocks: Iterator[bytes]) -> None:
        kind = {"Content-Type": "application/octet-stream"}
        with self._connection.asking(method, path, length, blocks, kind) as answer:
            answer.read()

    def _paced(self, blocks: Iterator[bytes], stop: Event | None) -> Iterator[bytes]:
        """Give blocks in small parts, each when it may go."""
        for block in blocks:
            for first in range(0, len(block), self._bucket.block):
                part = block[first : first + self._bucket.block]
                go_on(stop)
                self._bucket.take(len(part))
                yield part


def _base(job: str) -> str:
    return f"/snapshots/{quote(job, safe='')}"


def go_on(stop: Event | None) -> None:
    """Raise TransferStoppedError if no more is wanted."""
    if stop is not None and stop.is_set():
        raise TransferStoppedError("no more is wanted of this snapshot for now")


def _offset(given: object, size: int) -> int:
    return given if type(given) is int and 0 <= given <= size else 0


def _read(piece: SnapshotFile, open_piece: Callable[[SnapshotFile], BinaryIO]) -> bytes:
    with open_piece(piece) as file:
        data = file.read(piece.size + 1)
    if len(data) != piece.size:
        raise SnapshotError(f"{piece.path} is not what it was: {len(data)} bytes instead of {piece.size}")
    return data


def _blocks(file: BinaryIO, piece: SnapshotFile, offset: int) -> Iterator[bytes]:
    left = piece.size - offset
    while left:
        block = file.read(min(left, 1 << 20))
        if not block:
            raise SnapshotError(f"{piece.path} is not what it was: it ends {left} bytes early")
        left -= len(block)
        yield block
