"""The outermost layer: headers that every answer has, and an answer to what nobody foresaw."""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import trace_of
from penstock.logs import get_logger
from penstock.web.answers import error_answer

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_log = get_logger(__name__)


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
            answer = error_answer(500, f"something went wrong: look for {number} in the log", "internal")
            await answer(scope, receive, sealed)
