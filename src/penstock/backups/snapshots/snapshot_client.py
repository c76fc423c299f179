"""Sends snapshots to the store of another supervisor and fetches them.

The store is asked which objects it lacks; an interrupted transfer resumes from the files on both sides, and
no byte is sent twice.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

from penstock.backups.snapshots.durable_files import disk_full_errors, make_private
from penstock.backups.snapshots.snapshot_errors import (
    ManifestError,
    SnapshotDamagedError,
    SnapshotError,
    SnapshotMissingError,
    TransferStoppedError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_store import Listed
from penstock.backups.snapshots.token_bucket import TokenBucket
from penstock.backups.snapshots.transfer_format import (
    MOST_BODY,
    SMALL,
    compress_json,
    frame,
    frames,
    packs,
)
from penstock.node_client import NodeClient, NodeRequestError

_BLOCK = 1 << 20


class Fetch:
    """Fetches the objects of one snapshot. ``go_on`` raises when no more is wanted."""

    def __init__(
        self,
        node: NodeClient,
        base: str,
        into: Path,
        bucket: TokenBucket,
        go_on: Callable[[], None],
    ) -> None:
        self._node = node
        self._base = base
        self._into = into
        self._bucket = bucket
        self._go_on = go_on
        self._there: set[str] = set()
        self.moved = 0
        """How many bytes of objects have come."""

    def run(self, pieces: Iterable[SnapshotFile]) -> None:
        """Fetch what is not there."""
        with disk_full_errors():
            make_private(self._into)
        wanted = {piece.sha256: piece for piece in pieces}
        self._there = {name for name in sorted(wanted) if self._has(name)}
        for name in self._there:
            del wanted[name]
        small = [piece for _, piece in sorted(wanted.items()) if piece.size <= SMALL]
        for pack in packs(small):
            self._go_on()
            self._fetch_pack(pack)
        for _, piece in sorted(wanted.items()):
            if piece.sha256 not in self._there:
                self._fetch(piece)

    def _has(self, name: str) -> bool:
        """Whether an object is there from an earlier try. A damaged one is removed."""
        path = self._into / name
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == name:
                    return True
        except FileNotFoundError:
            return False
        path.unlink()
        return False

    def _keep(self, name: str) -> None:
        self._part(name).replace(self._into / name)
        self._there.add(name)

    def _fetch_pack(self, pack: list[SnapshotFile]) -> None:
        """Fetch small objects together. What does not come, or not whole, is asked for by itself later."""
        body, headers = _json_body({"objects": [piece.sha256 for piece in pack]})
        received = bytearray()
        try:
            with self._node.stream("POST", f"{self._base}/pack", content=body, headers=headers) as answer:
                for block in answer.iter_raw(self._bucket.block):
                    self._go_on()
                    self._bucket.take(len(block))
                    received += block
                    if len(received) > MOST_BODY:
                        break
        finally:
            self._keep_pack(bytes(received))

    def _keep_pack(self, received: bytes) -> None:
        """Keep the objects of a pack up to the first that is cut off or damaged."""
        with suppress(SnapshotDamagedError):
            for each in frames(io.BytesIO(received)):
                self.moved += len(each.data)
                if hashlib.sha256(each.data).hexdigest() == each.sha256:
                    with disk_full_errors(), _open(self._part(each.sha256), os.O_TRUNC) as file:
                        file.write(each.data)
                    self._keep(each.sha256)

    def _fetch(self, piece: SnapshotFile) -> None:
        for _ in range(2):
            with disk_full_errors(), _open(self._part(piece.sha256), os.O_APPEND) as file:
                offset = file.seek(0, os.SEEK_END)
                right = offset <= piece.size and self._fetch_rest(piece, offset, file)
            if right:
                self._keep(piece.sha256)
                return
            self._part(piece.sha256).unlink(missing_ok=True)
            if offset == 0:
                break
        raise SnapshotDamagedError(f"{self._base} has object {piece.sha256} ({piece.path}) damaged")

    def _fetch_rest(self, piece: SnapshotFile, offset: int, file: BinaryIO) -> bool:
        """Add what is missing to the end of a file; return whether it is the object then."""
        digest = hashlib.sha256()
        file.seek(0)
        while block := file.read(_BLOCK):
            digest.update(block)
        if offset < piece.size:
            headers = {"Range": f"bytes={offset}-"}
            path = f"{self._base}/objects/{piece.sha256}"
            try:
                with self._node.stream("GET", path, headers=headers) as answer:
                    length = int(answer.headers.get("Content-Length", "-1"))
                    if length != piece.size - offset or (offset > 0) != (answer.status_code == 206):
                        return False
                    for block in answer.iter_raw(self._bucket.block):
                        self._go_on()
                        self._bucket.take(len(block))
                        file.write(block)
                        digest.update(block)
                        self.moved += len(block)
            except NodeRequestError as error:
                if error.status == 404:
                    raise SnapshotMissingError(
                        f"{self._base} has lost object {piece.sha256} ({piece.path})"
                    ) from None
                if error.status != 416:
                    raise
                return False
        return digest.hexdigest() == piece.sha256

    def _part(self, sha256: str) -> Path:
        return self._into / f"{sha256}.part"


def _open(path: Path, flags: int) -> BinaryIO:
    """Open a file that only its owner can read."""
    descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "r+b")


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

    It connects when it is used first. It is for one thread at a time.
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
        self.url = _checked_url(url)
        self._node = NodeClient(token, connect=timeout, timeout=timeout)
        self._bucket = TokenBucket(rate, clock=clock, sleep=sleep)
        self.fetched = 0
        """Bytes of objects that have ever come."""
        self._sent = 0
        """Bytes of all bodies that were sent."""
        self._there: set[str] = set()
        """The objects of the snapshot that the store has kept last: it need not be asked for them."""

    def send(
        self, manifest: Manifest, open_piece: Callable[[SnapshotFile], BinaryIO], stop: Event | None = None
    ) -> Sent:
        """Send what the store lacks of a snapshot, and have it count.

        ``open_piece`` opens a file of it for reading. Raises NodeRequestError, TransferStoppedError
        when ``stop`` is set meanwhile, and what ``open_piece`` raises. After each of these it can be called
        again, and goes on.
        """
        before = self._sent
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
            except NodeRequestError as error:
                self._there.clear()
                if error.status != 409 or attempt == _ROUNDS - 1:
                    raise
                continue
            self._there = set(pieces)
            break
        return Sent(number, self._sent - before, objects)

    def fetch(self, job: str, manifest: Manifest, into: Path, stop: Event | None = None) -> int:
        """Fetch a snapshot's objects into a folder, each under its SHA-256; return how many bytes came.

        What is there already is not fetched again; what is there in part (``.part``) is continued. Raises
        SnapshotMissingError or SnapshotDamagedError when the store does not have it whole, NodeRequestError,
        and TransferStoppedError.
        """
        fetch = Fetch(self._node, self._base(job), into, self._bucket, lambda: go_on(stop))
        try:
            fetch.run(manifest.pieces)
        finally:
            self.fetched += fetch.moved
        return fetch.moved

    def manifests(self, job: str, *, before: int | None = None, limit: int | None = None) -> Listed:
        """Return the snapshots that the store has, as SnapshotStore.manifests does. Raises
        NodeRequestError."""
        asked = {"before": before, "limit": limit}
        params = {name: number for name, number in asked.items() if number is not None}
        answer = self._node.read_json("GET", f"{self._base(job)}/manifests", params=params)
        try:
            manifests, damaged = answer["manifests"], [str(reason) for reason in answer["damaged"]]
            read = tuple(Manifest.from_json(text.encode()) for text in manifests)
        except (TypeError, KeyError, AttributeError, ManifestError) as error:
            raise NodeRequestError(
                f"{self.url} answered no list of snapshots: {error}", again=False
            ) from None
        return Listed(read, tuple(damaged))

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Have a job's snapshots removed, unless a later worker has sent one. Raises NodeRequestError."""
        self._there.clear()
        worker = {"revision": revision, "attempt": attempt}
        self._node.read_json("DELETE", self._base(job), params=worker)

    def close(self) -> None:
        """Close the connection."""
        self._node.close()

    def __enter__(self) -> SnapshotClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, job: str, pieces: list[SnapshotFile]) -> dict[str, int]:
        lacking: dict[str, int] = {}
        for first in range(0, len(pieces), _ASKED):
            sizes = {piece.sha256: piece.size for piece in pieces[first : first + _ASKED]}
            answer = self._ask(f"{self._base(job)}/missing", {"objects": sizes})
            found = answer.get("missing") if isinstance(answer, dict) else None
            if not isinstance(found, dict):
                raise NodeRequestError(f"{self.url} did not answer what it lacks", again=False)
            lacking |= {name: _offset(offset, sizes[name]) for name, offset in found.items() if name in sizes}
        return lacking

    def _commit(self, manifest: Manifest) -> int:
        answer = self._ask(f"{self._base(manifest.job)}/manifests", {"manifest": manifest.to_json().decode()})
        number = answer.get("number") if isinstance(answer, dict) else None
        if type(number) is not int:
            raise NodeRequestError(
                f"{self.url} did not answer which number it gave the snapshot", again=False
            )
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
            self._put("POST", f"{self._base(job)}/objects", len(content), blocks)

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
            path = f"{self._base(job)}/objects/{piece.sha256}?offset={offset}&size={piece.size}"
            blocks = self._paced(_blocks(file, piece, offset), stop)
            self._put("PUT", path, piece.size - offset, blocks)

    def _put(self, method: str, url: str, length: int, blocks: Iterator[bytes]) -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
        self._node.read(method, url, content=blocks, headers=headers)

    def _ask(self, url: str, content: object) -> Any:
        body, headers = _json_body(content)
        self._sent += len(body)
        return self._node.read_json("POST", url, content=body, headers=headers)

    def _paced(self, blocks: Iterator[bytes], stop: Event | None) -> Iterator[bytes]:
        """Yield blocks in small parts, each when the rate allows it."""
        for block in blocks:
            for first in range(0, len(block), self._bucket.block):
                part = block[first : first + self._bucket.block]
                go_on(stop)
                self._bucket.take(len(part))
                yield part
                self._sent += len(part)

    def _base(self, job: str) -> str:
        return f"{self.url}/snapshots/{quote(job, safe='')}"


def _checked_url(url: str) -> str:
    """Return where a supervisor answers. Raises NodeRequestError if this cannot be such an address."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.path.strip("/") or parts.query or "@" in parts.netloc:
        raise NodeRequestError(f"{url!r} is not where a supervisor answers: http://HOST:PORT", again=False)
    return f"http://{parts.netloc}"


def _json_body(content: object) -> tuple[bytes, dict[str, str]]:
    return compress_json(content), {"Content-Type": "application/json", "Content-Encoding": "deflate"}


def go_on(stop: Event | None) -> None:
    """Raise TransferStoppedError if no more is wanted."""
    if stop is not None and stop.is_set():
        raise TransferStoppedError("the transfer of this snapshot was cancelled")


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
