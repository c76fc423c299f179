"""What stands before a supervisor's agent, which is for programs alone: browsers are refused."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.logs import get_logger

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_log = get_logger("penstock.web.agent")


class SupervisorGuard:
    """Lets in what has one of ``hosts`` as Host, no Origin, and the token.

    The Host is looked at because a page in a browser can give its own name our address; whoever is refused
    hears so before the body is read.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str], public: Iterable[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {_bracketed(host) for host in (*LOOPBACK, *hosts)}
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither web sockets nor a lifespan are served
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
            return 421, "the Host of this request is not served here"
        if "origin" in headers:
            return 403, "this is no place for browsers"
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
