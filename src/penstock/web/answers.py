"""How a master answers: JSON, and errors in one form, ``{"error": {"code": …, "message": …}}``."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from penstock.coord.store import DisconnectedError
from penstock.daemons.interface import InvalidRequestError, NotFoundError, RefusedError
from penstock.web.refusals import log_refusal

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
        message = f"the store does not answer; a change may have been made or not: {error}"
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
