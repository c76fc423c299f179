"""What a supervisor answers to masters, other supervisors and workers: blobs, snapshots, logs of its node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.bundles.blobs import BlobError, BlobMissingError, BlobNameError, BlobSizeError, BlobStore
from penstock.bundles.limits import MOST_PACKED, megabytes
from penstock.errors import PenstockError
from penstock.graph.names import name_fault
from penstock.log_lines import CursorError, read_lines
from penstock.snapshots.store import SnapshotStore
from penstock.user_output import without_secrets
from penstock.web.agent_guard import SupervisorGuard
from penstock.web.agent_snapshots import STATUS as SNAPSHOT_STATUS
from penstock.web.agent_snapshots import SnapshotRoutes

MOST_LINES = 1_000
"""Lines in one answer."""
_PIECE = 1 << 20
_SECONDS = 120.0
"""In which a blob must have come: 64 MiB at half a megabyte a second."""
_STATUS: dict[type[Exception], int] = {
    BlobNameError: 400,
    BlobMissingError: 404,
    BlobSizeError: 413,
    CursorError: 400,
    BlobError: 422,
    **SNAPSHOT_STATUS,
}


def make_supervisor_api(
    blobs: BlobStore,
    log_files: Callable[[], list[Path]],
    token: str,
    node: str,
    *,
    hosts: Iterable[str] = (),
    snapshots: SnapshotStore | None = None,
) -> Starlette:
    """Make the application of one node's supervisor.

    ``hosts`` are the names and addresses it is reached by, beside those of loopback. Without ``snapshots`` it
    keeps none. All but ``/livez`` needs the token. There is no CORS.
    """

    def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok", "node": node})

    def get_blob(request: Request) -> Response:
        file = blobs.open(request.path_params["sha256"])
        size = file.seek(0, 2)
        file.seek(0)
        headers = {"Content-Length": str(size)}
        return StreamingResponse(_pieces(file), media_type="application/octet-stream", headers=headers)

    async def put_blob(request: Request) -> Response:
        said = request.headers.get("content-length", "0")
        if not said.isascii() or not said.isdigit() or int(said[:20]) > MOST_PACKED:
            raise BlobSizeError(f"a blob has at most {megabytes(MOST_PACKED)}")
        with blobs.incoming(request.path_params["sha256"]) as blob:
            async with asyncio.timeout(_SECONDS):
                async for piece in request.stream():
                    blob.write(piece)
        return JSONResponse({"sha256": request.path_params["sha256"]}, status_code=201)

    def get_logs(request: Request) -> Response:
        asked = request.query_params
        job = asked.get("job", "")
        if job and name_fault(job) is not None:
            raise HTTPException(400, "'job' is not the name of a job")
        limit = _limit(asked.get("limit", "200"))
        lines, cursor = read_lines(log_files(), asked.get("cursor", ""), job, limit)
        return JSONResponse({"lines": [without_secrets(line) for line in lines], "cursor": cursor})

    app = Starlette(
        routes=[
            Route("/livez", alive, methods=["GET"]),
            Route("/blobs/{sha256}", get_blob, methods=["GET"]),
            Route("/blobs/{sha256}", put_blob, methods=["PUT"]),
            Route("/logs", get_logs, methods=["GET"]),
            *(SnapshotRoutes(snapshots).routes() if snapshots is not None else []),
        ],
        middleware=[Middleware(SupervisorGuard, token=token, hosts=tuple(hosts), public=("/livez",))],
        exception_handlers={
            HTTPException: _refused,
            PenstockError: _failed,
            TimeoutError: _too_slow,
            ClientDisconnect: _too_slow,
            Exception: _broken,
        },
    )
    app.router.redirect_slashes = False
    return app


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) or not 1 <= int(text) <= MOST_LINES:
        raise HTTPException(400, f"'limit' must be a number from 1 to {MOST_LINES}")
    return int(text)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": str(error)}, status)


async def _too_slow(_: Request, _error: Exception) -> Response:
    return JSONResponse({"error": "the body did not come in time"}, 408)


async def _broken(_: Request, _error: Exception) -> Response:
    # What happened is in the log: the server raises the error again.
    return JSONResponse({"error": "the supervisor failed to answer: see its log"}, 500)
