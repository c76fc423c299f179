"""Sends snapshots to the store of another supervisor and fetches them.

The client asks the store which objects it lacks. An interrupted transfer resumes from the files on both
sides, so that no byte is sent twice.
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
    """Fetches the objects of one snapshot. ``check_not_stopped`` raises to cancel the transfer."""

    def __init__(
        self,
        node: NodeClient,
        base: str,
        into: Path,
        bucket: TokenBucket,
        check_not_stopped: Callable[[], None],
    ) -> None:
        self._node = node
        self._base = base
        self._into = into
        self._bucket = bucket
        self._check_not_stopped = check_not_stopped
        self._present: set[str] = set()
        self.moved = 0
        """How many bytes of objects have been received."""

    def run(self, pieces: Iterable[SnapshotFile]) -> None:
        """Fetch all objects that are not present."""
        with disk_full_errors():
            make_private(self._into)
        wanted = {piece.sha256: piece for piece in pieces}
        self._present = {name for name in sorted(wanted) if self._has(name)}
        for name in self._present:
            del wanted[name]
        small = [piece for _, piece in sorted(wanted.items()) if piece.size <= SMALL]
        for pack in packs(small):
            self._check_not_stopped()
            self._fetch_pack(pack)
        for _, piece in sorted(wanted.items()):
            if piece.sha256 not in self._present:
                self._fetch(piece)

    def _has(self, name: str) -> bool:
        """Return whether an earlier attempt has fetched an object. A damaged one is removed."""
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
        self._present.add(name)

    def _fetch_pack(self, pack: list[SnapshotFile]) -> None:
        """Fetch a pack of small objects. Missing or truncated ones are fetched individually later."""
        body, headers = _json_body({"objects": [piece.sha256 for piece in pack]})
        received = bytearray()
        try:
            with self._node.stream("POST", f"{self._base}/pack", content=body, headers=headers) as answer:
                for block in answer.iter_raw(self._bucket.block):
                    self._check_not_stopped()
                    self._bucket.take(len(block))
                    received += block
                    if len(received) > MOST_BODY:
                        break
        finally:
            self._keep_pack(bytes(received))

    def _keep_pack(self, received: bytes) -> None:
        """Store the objects of a pack up to the first truncated or invalid one."""
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
                intact = offset <= piece.size and self._fetch_rest(piece, offset, file)
            if intact:
                self._keep(piece.sha256)
                return
            self._part(piece.sha256).unlink(missing_ok=True)
            if offset == 0:
                break
        raise SnapshotDamagedError(f"{self._base}: object {piece.sha256} ({piece.path}) is damaged")

    def _fetch_rest(self, piece: SnapshotFile, offset: int, file: BinaryIO) -> bool:
        """Append the rest of an object to a file; return whether its digest is then correct."""
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
                        self._check_not_stopped()
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


_MAX_ROUNDS = 3
_OBJECTS_PER_REQUEST = 20_000


@dataclass(frozen=True)
class Sent:
    """A snapshot that was sent completely."""

    number: int
    """The number that the store assigned to it."""
    bytes_sent: int
    """The size of all request bodies, including the manifest."""
    objects: int
    """The number of objects that had to be sent."""


class SnapshotClient:
    """A client of one supervisor's store, limited to ``rate`` bytes a second; ``token`` is the node token.

    It connects on first use. Only one thread may use it at a time.
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
        """Bytes of objects received by all calls."""
        self._sent = 0
        """Bytes of all request bodies sent."""
        self._present: set[str] = set()
        """The objects of the last committed snapshot, which the store is known to have."""

    def send(
        self, manifest: Manifest, open_piece: Callable[[SnapshotFile], BinaryIO], stop: Event | None = None
    ) -> Sent:
        """Send the objects of a snapshot that the store lacks, and commit the snapshot.

        ``open_piece`` opens a file of it for reading. Raises NodeRequestError, TransferStoppedError
        when ``stop`` is set meanwhile, and what ``open_piece`` raises. After any of these, another call
        resumes the transfer.
        """
        before = self._sent
        pieces = {piece.sha256: piece for piece in manifest.pieces}
        objects = 0
        for attempt in range(_MAX_ROUNDS):
            unknown = [piece for name, piece in sorted(pieces.items()) if name not in self._present]
            lacking = self._missing(manifest.job, unknown)
            self._send_small(manifest.job, [pieces[name] for name in lacking], open_piece, stop)
            for name, offset in sorted(lacking.items()):
                if pieces[name].size > SMALL:
                    self._send_large(manifest.job, pieces[name], offset, open_piece, stop)
            objects += len(lacking)
            check_not_stopped(stop)
            try:
                number = self._commit(manifest)
            except NodeRequestError as error:
                self._present.clear()
                if error.status != 409 or attempt == _MAX_ROUNDS - 1:
                    raise
                continue
            self._present = set(pieces)
            break
        return Sent(number, self._sent - before, objects)

    def fetch(self, job: str, manifest: Manifest, into: Path, stop: Event | None = None) -> int:
        """Fetch a snapshot's objects into a folder, named by SHA-256; return the number of bytes received.

        Objects already present are not fetched again, and partial ones (``.part``) are resumed. Raises
        SnapshotMissingError or SnapshotDamagedError when the store does not have all objects intact,
        NodeRequestError, and TransferStoppedError.
        """
        fetch = Fetch(self._node, self._base(job), into, self._bucket, lambda: check_not_stopped(stop))
        try:
            fetch.run(manifest.pieces)
        finally:
            self.fetched += fetch.moved
        return fetch.moved

    def manifests(self, job: str, *, before: int | None = None, limit: int | None = None) -> Listed:
        """Return the store's snapshots like SnapshotStore.manifests. Raises NodeRequestError."""
        given = {"before": before, "limit": limit}
        params = {name: number for name, number in given.items() if number is not None}
        answer = self._node.read_json("GET", f"{self._base(job)}/manifests", params=params)
        try:
            manifests, damaged = answer["manifests"], [str(reason) for reason in answer["damaged"]]
            read = tuple(Manifest.from_json(text.encode()) for text in manifests)
        except (TypeError, KeyError, AttributeError, ManifestError) as error:
            raise NodeRequestError(
                f"{self.url} returned an invalid list of snapshots: {error}", again=False
            ) from None
        return Listed(read, tuple(damaged))

    def forget(self, job: str, *, revision: int, attempt: int) -> None:
        """Remove a job's snapshots, unless a later worker has sent one. Raises NodeRequestError."""
        self._present.clear()
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
        for first in range(0, len(pieces), _OBJECTS_PER_REQUEST):
            sizes = {piece.sha256: piece.size for piece in pieces[first : first + _OBJECTS_PER_REQUEST]}
            answer = self._ask(f"{self._base(job)}/missing", {"objects": sizes})
            found = answer.get("missing") if isinstance(answer, dict) else None
            if not isinstance(found, dict):
                raise NodeRequestError(f"{self.url} returned an invalid list of missing objects", again=False)
            lacking |= {name: _offset(offset, sizes[name]) for name, offset in found.items() if name in sizes}
        return lacking

    def _commit(self, manifest: Manifest) -> int:
        answer = self._ask(f"{self._base(manifest.job)}/manifests", {"manifest": manifest.to_json().decode()})
        number = answer.get("number") if isinstance(answer, dict) else None
        if type(number) is not int:
            raise NodeRequestError(
                f"{self.url} did not return the number of the committed snapshot", again=False
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
        """Yield blocks in small parts, delayed by the rate limit."""
        for block in blocks:
            for first in range(0, len(block), self._bucket.block):
                part = block[first : first + self._bucket.block]
                check_not_stopped(stop)
                self._bucket.take(len(part))
                yield part
                self._sent += len(part)

    def _base(self, job: str) -> str:
        return f"{self.url}/snapshots/{quote(job, safe='')}"


def _checked_url(url: str) -> str:
    """Validate a supervisor's URL and return it. Raises NodeRequestError."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.path.strip("/") or parts.query or "@" in parts.netloc:
        raise NodeRequestError(f"{url!r} is not a supervisor's URL: use http://HOST:PORT", again=False)
    return f"http://{parts.netloc}"


def _json_body(content: object) -> tuple[bytes, dict[str, str]]:
    return compress_json(content), {"Content-Type": "application/json", "Content-Encoding": "deflate"}


def check_not_stopped(stop: Event | None) -> None:
    """Raise TransferStoppedError if ``stop`` is set."""
    if stop is not None and stop.is_set():
        raise TransferStoppedError("the transfer of this snapshot was cancelled")


def _offset(given: object, size: int) -> int:
    return given if type(given) is int and 0 <= given <= size else 0


def _read(piece: SnapshotFile, open_piece: Callable[[SnapshotFile], BinaryIO]) -> bytes:
    with open_piece(piece) as file:
        data = file.read(piece.size + 1)
    if len(data) != piece.size:
        raise SnapshotError(f"{piece.path} has changed: it has {len(data)} bytes instead of {piece.size}")
    return data


def _blocks(file: BinaryIO, piece: SnapshotFile, offset: int) -> Iterator[bytes]:
    left = piece.size - offset
    while left:
        block = file.read(min(left, 1 << 20))
        if not block:
            raise SnapshotError(f"{piece.path} has changed: it ends {left} bytes early")
        left -= len(block)
        yield block
