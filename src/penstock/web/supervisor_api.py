"""The HTTP API of a supervisor, for masters, workers and other supervisors.

Blobs, snapshots and logs, behind the node token. It must not import FastAPI or pydantic.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.blob_store import BlobError, BlobMissingError, BlobNameError, BlobSizeError, BlobStore
from penstock.bundles.bundle_limits import MOST_PACKED, megabytes
from penstock.errors import PenstockError
from penstock.process_logs.log_reader import CursorError, read_lines
from penstock.process_logs.process_log import get_logger
from penstock.process_logs.user_output import without_secrets
from penstock.setting_values import name_fault
from penstock.web.snapshot_routes import STATUS as SNAPSHOT_STATUS
from penstock.web.snapshot_routes import SnapshotRoutes

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_log = get_logger("penstock.web.supervisor_api")


class SupervisorGuard:
    """Serves only requests with one of ``hosts`` as Host, without an Origin, and with the token.

    Checking the Host prevents DNS rebinding, by which a web page gives its domain the address of this server.
    Requests are refused before their body is read.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str], public: Iterable[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {_bracketed(host) for host in (*LOOPBACK, *hosts)}
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # Web sockets and the lifespan protocol are not supported.
        status, fault = self._fault(scope["path"], Headers(scope=scope))
        if not fault:
            await self._app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        _log.warning(
            "request refused",
            reason=fault,
            status=status,
            method=scope["method"],
            path=scope["path"],
            client=client,
        )
        answer = JSONResponse({"error": fault}, status_code=status)
        if status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        await answer(scope, receive, send)

    def _fault(self, path: str, headers: Headers) -> tuple[int, str]:
        if host_of(headers.get("host", "")) not in self._hosts:
            return 421, "requests for this Host are not served"
        if "origin" in headers:
            return 403, "requests with an Origin, as browsers send them, are not served"
        if path in self._public:
            return 200, ""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode("utf-8", errors="replace")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self._token):
            return 401, "the token is missing or wrong"
        return 200, ""


def host_of(header: str) -> str:
    """Return the name or address in a Host header, without the port.

    >>> host_of("LOCALHOST:8080"), host_of("[::1]:80"), host_of("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    name = header.strip().lower()
    end = name.find("]") + 1
    return name[:end] if name.startswith("[") and end else name.partition(":")[0]


def _bracketed(host: str) -> str:
    return f"[{host}]".lower() if ":" in host and not host.startswith("[") else host.lower()


MOST_LINES = 1_000
"""Maximum number of log lines in one response."""
_PIECE = 1 << 20
_SECONDS = 120.0
"""Seconds within which a blob must arrive: 64 MiB at half a megabyte a second."""
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
    """Return the application of a node's supervisor.

    ``hosts`` are the names and addresses that clients use in URLs, in addition to those of loopback. Without
    ``snapshots`` there are no routes for snapshots. All routes but ``/livez`` require the token. CORS is not
    supported.
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
        declared = request.headers.get("content-length", "0")
        if not declared.isascii() or not declared.isdigit() or int(declared[:20]) > MOST_PACKED:
            raise BlobSizeError(f"a blob may have at most {megabytes(MOST_PACKED)}")
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
    return JSONResponse({"error": "the body did not arrive in time"}, 408)


async def _broken(_: Request, _error: Exception) -> Response:
    # The server raises the error again, which logs it.
    return JSONResponse({"error": "the supervisor failed to answer: see its log"}, 500)
