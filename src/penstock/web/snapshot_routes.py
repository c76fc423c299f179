"""HTTP routes of a supervisor for the snapshots that it keeps for other nodes.

Disk access and digests run in threads, so that they do not block other requests to the supervisor.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.backups.snapshots import snapshot_errors
from penstock.backups.snapshots.object_store import MOST_OBJECT
from penstock.backups.snapshots.snapshot_errors import ManifestError, SnapshotError
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile, is_sha256
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.backups.snapshots.transfer_format import (
    MOST_BODY,
    MOST_OBJECTS,
    SMALL,
    compress_json,
    decompress_json,
    frame,
)

STATUS = {
    snapshot_errors.SnapshotNameError: 400,
    ManifestError: 400,
    snapshot_errors.SnapshotMissingError: 404,
    snapshot_errors.SnapshotOffsetError: 409,
    snapshot_errors.SnapshotIncompleteError: 409,
    snapshot_errors.SnapshotStaleError: 412,
    snapshot_errors.SnapshotSizeError: 413,
    snapshot_errors.SnapshotDamagedError: 422,
    snapshot_errors.SnapshotFullError: 507,
    SnapshotError: 422,
}
"""The HTTP status of each error."""

MOST_PACKED, MOST_JSON = 64 << 20, 256 << 20
"""Maximum number of bytes of a JSON body, as received and unpacked."""
_SECONDS = 60.0
"""Maximum number of seconds between two parts of a body."""
_BLOCK = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)


class SnapshotRoutes:
    """The routes of one store."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/snapshots/{job}", self.forget, methods=["DELETE"]),
            Route("/snapshots/{job}/missing", self.missing, methods=["POST"]),
            Route("/snapshots/{job}/objects", self.put_many, methods=["POST"]),
            Route("/snapshots/{job}/objects/{sha256}", self.put, methods=["PUT"]),
            Route("/snapshots/{job}/objects/{sha256}", self.get, methods=["GET"]),
            Route("/snapshots/{job}/pack", self.get_many, methods=["POST"]),
            Route("/snapshots/{job}/manifests", self.commit, methods=["POST"]),
            Route("/snapshots/{job}/manifests", self.manifests, methods=["GET"]),
        ]

    async def missing(self, request: Request) -> Response:
        """Return which of the given objects are missing, and how many bytes of each are here."""
        content = await _read_json_body(request)
        sizes = content.get("objects")
        if not isinstance(sizes, dict) or not all(map(is_sha256, sizes)):
            raise HTTPException(400, "'objects' must map the SHA-256 of each object to its size")
        if not all(type(size) is int and size >= 0 for size in sizes.values()):
            raise HTTPException(400, "the size of an object must be a whole number from 0 on")
        pieces = [SnapshotFile("", sha256, size) for sha256, size in sizes.items()]
        lacking = await run_in_threadpool(self._store.missing, _job(request), pieces)
        return JSONResponse({"missing": lacking})

    async def put(self, request: Request) -> Response:
        """Receive an object from an offset on."""
        offset, size = _number(request, "offset"), _number(request, "size")
        if offset is None or size is None:
            raise HTTPException(400, "'offset' and 'size' are missing")
        length = _length(request, MOST_OBJECT)
        if length is not None and offset + length > size:
            raise snapshot_errors.SnapshotSizeError(
                f"the object has {size} bytes, but {length} bytes from offset {offset} on were announced"
            )
        sha256 = request.path_params["sha256"]
        receiving = await run_in_threadpool(self._store.receive, _job(request), sha256, offset, size)
        try:
            async for block in _blocks(request):
                await run_in_threadpool(receiving.write, block)
            whole = await run_in_threadpool(receiving.finish)
        finally:
            receiving.close()
        return JSONResponse({"whole": whole, "held": receiving.held}, status_code=201 if whole else 202)

    async def put_many(self, request: Request) -> Response:
        """Receive several small objects. If the body is cut off, the objects before the cut are kept."""
        _length(request, MOST_BODY)
        body = bytearray()
        broken: Exception | None = None
        try:
            async for block in _blocks(request):
                body += block
                if len(body) > MOST_BODY:
                    raise snapshot_errors.SnapshotSizeError(
                        f"a pack of objects may have at most {MOST_BODY} bytes"
                    )
        except (ClientDisconnect, TimeoutError) as error:
            broken = error
        try:
            count = await run_in_threadpool(self._store.unpack, _job(request), bytes(body))
        except snapshot_errors.SnapshotDamagedError:
            if broken is None:
                raise
        if broken is not None:
            raise broken
        return JSONResponse({"kept": count}, status_code=201)

    def get(self, request: Request) -> Response:
        """Send an object, or the rest of it from an offset on."""
        file = self._store.open(_job(request), request.path_params["sha256"])
        size = file.seek(0, 2)
        asked = request.headers.get("range")
        found = re.fullmatch(r"bytes=([0-9]{1,15})-", asked, re.ASCII) if asked is not None else None
        first = int(found[1]) if found else 0
        if asked is not None and (found is None or first > size):
            file.close()
            raise HTTPException(416, f"the object has {size} bytes", {"Content-Range": f"bytes */{size}"})
        file.seek(first)
        headers = {"Content-Length": str(size - first)}
        if first:
            headers["Content-Range"] = f"bytes {first}-{max(first, size - 1)}/{size}"
        return StreamingResponse(
            _contents(file), 206 if first else 200, headers, media_type="application/octet-stream"
        )

    async def get_many(self, request: Request) -> Response:
        """Send several small objects. Objects that are missing or not small are left out."""
        names = (await _read_json_body(request)).get("objects")
        if not isinstance(names, list) or not all(map(is_sha256, names)) or len(names) > MOST_OBJECTS:
            raise HTTPException(400, f"'objects' must list the SHA-256 of at most {MOST_OBJECTS} objects")
        return StreamingResponse(self._frames(_job(request), names), media_type="application/octet-stream")

    def _frames(self, job: str, names: list[str]) -> Iterator[bytes]:
        gathered: list[bytes] = []
        total = 0
        for name in names:
            try:
                with self._store.open(job, name) as file:
                    data = file.read(SMALL + 1)
            except snapshot_errors.SnapshotMissingError:
                continue
            if len(data) <= SMALL:
                gathered.append(frame(name, data))
                total += len(data)
            if total > SMALL:
                yield b"".join(gathered)
                gathered, total = [], 0
        yield b"".join(gathered)

    async def commit(self, request: Request) -> Response:
        """Commit a snapshot, whose objects were sent before."""
        text = (await _read_json_body(request)).get("manifest")
        if not isinstance(text, str):
            raise HTTPException(400, "'manifest' must be the text of a manifest")
        number = await run_in_threadpool(self._commit, _job(request), text)
        return JSONResponse({"number": number}, status_code=201)

    def _commit(self, job: str, text: str) -> int:
        return self._store.commit(job, Manifest.from_json(text.encode(errors="replace")))

    def manifests(self, request: Request) -> Response:
        """Send the manifests of the snapshots that are here, newest first."""
        listed = self._store.manifests(
            _job(request), before=_number(request, "before"), limit=_number(request, "limit")
        )
        texts = [manifest.to_json().decode() for manifest in listed.manifests]
        body = compress_json({"manifests": texts, "damaged": listed.damaged})
        return Response(body, media_type="application/json", headers={"Content-Encoding": "deflate"})

    def forget(self, request: Request) -> Response:
        """Remove all snapshots of a job, as requested by one of its workers."""
        revision, attempt = _number(request, "revision"), _number(request, "attempt")
        if revision is None or attempt is None:
            raise HTTPException(400, "'revision' and 'attempt' of the requesting worker are missing")
        self._store.forget(_job(request), revision=revision, attempt=attempt)
        return JSONResponse({"forgotten": _job(request)})


def _job(request: Request) -> str:
    return str(request.path_params["job"])


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise HTTPException(400, f"'{name}' is not a number")
    return int(text)


def _length(request: Request, most: int) -> int | None:
    """Return the declared length of a body, if there is one. Raises SnapshotSizeError if it is too long."""
    text = request.headers.get("content-length")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text[:20]) > most:
        raise snapshot_errors.SnapshotSizeError(f"the body may have at most {most} bytes")
    return int(text)


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body in blocks large enough for a call in a thread.

    Raises TimeoutError when nothing arrives for too long, ClientDisconnect when the connection breaks. The
    part that was received before is yielded before the error is raised.
    """
    gathered = bytearray()
    stream = request.stream()
    try:
        while True:
            async with asyncio.timeout(_SECONDS):
                block = await anext(stream, None)
            if block is None:
                break
            gathered += block
            if len(gathered) >= _BLOCK:
                yield bytes(gathered)
                gathered.clear()
    except (ClientDisconnect, TimeoutError):
        if gathered:
            yield bytes(gathered)
        raise
    if gathered:
        yield bytes(gathered)


async def _read_json_body(request: Request) -> dict[str, Any]:
    """Read a JSON body, which may be compressed."""
    _length(request, MOST_PACKED)
    body = bytearray()
    async for block in _blocks(request):
        body += block
        if len(body) > MOST_PACKED:
            raise snapshot_errors.SnapshotSizeError(f"the body may have at most {MOST_PACKED} bytes")
    packed = request.headers.get("content-encoding") == "deflate"
    try:
        content = await run_in_threadpool(_parsed, bytes(body), packed)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "the body is not a JSON object")
    return content


def _parsed(body: bytes, packed: bool) -> Any:
    return json.loads(decompress_json(body, MOST_JSON) if packed else body)


def _contents(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block
