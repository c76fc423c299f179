"""Responses of a master.

JSON, errors in one form, hidden secrets, security headers, and a log line for every refused request.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.cluster.client_requests import InvalidRequestError, NotFoundError, RefusedError
from penstock.coord.coordination_store import DisconnectedError
from penstock.errors import trace_of
from penstock.parameters import HIDDEN, masked
from penstock.process_logs.process_log import get_logger

_MAX_LOGGED = 200

_log = get_logger(__name__)


def log_refusal(scope: Scope, status: int, reason: str) -> None:
    """Log that a request was refused, and why."""
    raw = scope.get("raw_path") or scope["path"].encode()
    client = scope.get("client")
    _log.warning(
        "request refused",
        status=status,
        reason=reason[: 5 * _MAX_LOGGED],
        method=scope.get("method", scope["type"]),
        path=raw.decode("latin-1")[:_MAX_LOGGED],
        client=client[0] if client else "",
    )


_SECRET = re.compile(r"(?i)secret|password|passwd|credential|token|access[._-]?key")
_GIVEN = frozenset({"params", "env"})
"""Fields of a job whose names its user has chosen: more of them are taken for those of secrets."""


def redacted(value: Any) -> Any:
    """Return plain data with the text below each name that sounds like a secret's hidden.

    >>> redacted({"conf": {"spark.hadoop.fs.s3a.secret.key": "abc", "spark.ui.enabled": "false"}})
    {'conf': {'spark.hadoop.fs.s3a.secret.key': '*(hidden)*', 'spark.ui.enabled': 'false'}}
    >>> redacted({"params": {"api_key": "abc", "since": "2026"}, "key": "user"})
    {'params': {'api_key': '*(hidden)*', 'since': '2026'}, 'key': 'user'}
    """
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def _redacted(name: str, item: Any) -> Any:
    if isinstance(item, str):
        return HIDDEN if item and _SECRET.search(name) else item
    if name in _GIVEN and isinstance(item, Mapping):
        return masked(redacted(item))
    return redacted(item)


RETRY_AFTER = "2"
"""Seconds after which an election has most likely ended."""

_MAX_FIELD_NAME = 100
"""Characters of a name that somebody has made up."""
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    421: "misdirected",
}


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII: half a surrogate pair, which may be in any log line, then needs no special care."""

    def render(self, content: Any) -> bytes:
        """Write the content."""
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def error_answer(status: int, message: str, code: str = "", **headers: str) -> AsciiJSONResponse:
    """Make the answer to a request that is not granted; ``Retry_After="2"`` becomes a header."""
    content = {"error": {"code": code or _CODES.get(status, "error"), "message": message}}
    return AsciiJSONResponse(
        content, status, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def add_error_handlers(app: FastAPI) -> None:
    """Give every error that a request can meet its answer.

    NotLeaderError is left out: it goes on to what forwards the request. So is everything unforeseen.
    """

    @app.exception_handler(NotFoundError)
    def _unknown(request: Request, error: NotFoundError) -> AsciiJSONResponse:
        return _refuse(request, 404, str(error), "unknown")

    @app.exception_handler(RefusedError)
    def _refused(request: Request, error: RefusedError) -> AsciiJSONResponse:
        return _refuse(request, 409, str(error), "refused")

    @app.exception_handler(InvalidRequestError)
    def _invalid(request: Request, error: InvalidRequestError) -> AsciiJSONResponse:
        return _refuse(request, 422, str(error), "invalid")

    @app.exception_handler(RequestValidationError)
    def _malformed(request: Request, error: RequestValidationError) -> AsciiJSONResponse:
        return _refuse(request, 422, "; ".join(_told(fault) for fault in error.errors()), "invalid")

    @app.exception_handler(DisconnectedError)
    def _disconnected(_: Request, error: DisconnectedError) -> AsciiJSONResponse:
        message = f"the store does not answer; the change may have been made: {error}"
        return error_answer(503, message, "disconnected", Retry_After=RETRY_AFTER)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> AsciiJSONResponse:
        answer = _refuse(request, error.status_code, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer


def _refuse(request: Request, status: int, message: str, code: str = "") -> AsciiJSONResponse:
    log_refusal(request.scope, status, message)
    return error_answer(status, message, code)


def _told(fault: dict[str, Any]) -> str:
    """Say where a request is wrong and why, without what was given: that may be long, or secret."""
    return f"{'.'.join(str(part)[:_MAX_FIELD_NAME] for part in fault['loc'])}: {fault['msg']}"


HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class FinalResponseMiddleware:
    """Sees every answer last. A failure is told by a number that is in the log, with all there is to say."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sealed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, sealed)
        except Exception as error:
            number = secrets.token_hex(8)
            _log.error(
                "request failed",
                id=number,
                method=scope["method"],
                path=scope["path"],
                started=started,
                error=repr(error),
                trace=trace_of(error),
            )
            if started:
                raise  # Half an answer must not look whole: the server cuts the connection.
            answer = error_answer(
                500, f"internal error: its cause is in the master's log under id {number}", "internal"
            )
            await answer(scope, receive, sealed)
