"""Responses of a master.

JSON bodies, errors in one format, secrets hidden, security headers, and a log line for every refused request.
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
_USER_NAMED = frozenset({"params", "env"})
"""Fields of a job whose keys are chosen by the user: more words in these keys mark a secret."""


def redacted(value: Any) -> Any:
    """Return plain data with the values of keys that look like names of secrets hidden.

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
    if name in _USER_NAMED and isinstance(item, Mapping):
        return masked(redacted(item))
    return redacted(item)


RETRY_AFTER = "2"
"""Seconds within which an election usually ends."""

_MAX_FIELD_NAME = 100
"""Maximum number of characters of a client's field name in an error message."""
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
    """JSON in ASCII, which can represent half of a surrogate pair; any log line may contain one."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def error_answer(status: int, message: str, code: str = "", **headers: str) -> AsciiJSONResponse:
    """Return an error response; keywords become headers, such as ``Retry_After="2"``."""
    content = {"error": {"code": code or _CODES.get(status, "error"), "message": message}}
    return AsciiJSONResponse(
        content, status, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def add_error_handlers(app: FastAPI) -> None:
    """Register a response for every error that is expected while a request is served.

    NotLeaderError is left to LeaderForwarding, and unexpected errors to FinalResponseMiddleware.
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
        return _refuse(request, 422, "; ".join(_describe(fault) for fault in error.errors()), "invalid")

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


def _describe(fault: dict[str, Any]) -> str:
    """Return where a request is invalid and why, without the given value, which may be long or secret."""
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
    """Adds security headers to every response, and answers unexpected errors.

    The response to an unexpected error has only an id, under which the log has the details.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
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
                raise  # The server cuts the connection, so that a partial response does not look complete.
            answer = error_answer(
                500, f"internal error: its cause is in the master's log under id {number}", "internal"
            )
            await answer(scope, receive, send_with_headers)
