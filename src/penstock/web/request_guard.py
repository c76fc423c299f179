"""Checks every request before it is served: token, Host, Origin, method, path and size.

The body of a refused request is not read, and every refusal is logged.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.bundles.bundle_limits import MOST_PACKED
from penstock.web.api_responses import error_answer, log_refusal

SAFE = frozenset({"GET", "HEAD"})
METHODS = SAFE | {"POST", "PUT", "DELETE"}
OPEN = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that can be read without the token: probes and metrics, which contain no secrets."""

BUNDLES = "/api/v1/bundles/"

_PATH = re.compile(rb"(/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){1,8}")
"""All names in paths consist of these characters, so no path needs encoded characters."""
_QUERY = re.compile(rb"[!-~]{0,32768}")
"""Long enough for the cursor of a log with parts on hundreds of nodes."""


@dataclass(frozen=True)
class Limits:
    """Maximum number of bytes in the body of a request."""

    bundle: int = MOST_PACKED
    document: int = 768 << 10
    """A job's document must fit into one node of the store; ZooKeeper allows 1 MB."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused."""

    status: int
    reason: str
    headers: dict[str, str] = field(default_factory=dict)


class TooLargeError(HTTPException):
    """A body is larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than {limit} bytes")


class MasterGuard:
    """Serves only requests with a valid method, Host, Origin, token, path and size."""

    def __init__(
        self, app: ASGIApp, *, token: str, hosts: Sequence[str], origins: Sequence[str], limits: Limits
    ) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            log_refusal(scope, 403, "only HTTP requests are served")
            await send({"type": "websocket.close", "code": 1008})
            return
        limit = self._limits.bundle if scope["path"].startswith(BUNDLES) else self._limits.document
        refusal = self._refusal(scope, Headers(scope=scope), limit)
        if refusal is not None:
            log_refusal(scope, refusal.status, refusal.reason)
            answer = error_answer(refusal.status, refusal.reason, **refusal.headers)
            await answer(scope, receive, send)
            return
        try:
            await self._app(scope, _limit_body(receive, limit), send)
        except TooLargeError as error:
            log_refusal(scope, 413, error.detail)
            await error_answer(413, error.detail)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, limit: int) -> Refusal | None:
        return (
            self._check_host(headers)
            or self._check_origin(headers)
            or _check_method(scope)
            or self._check_token(scope, headers)
            or _check_path(scope)
            or _check_length(headers, limit)
        )

    def _check_host(self, headers: Headers) -> Refusal | None:
        """Prevent DNS rebinding: a page whose domain resolves to this address sends that domain as Host."""
        given = headers.getlist("host")
        if len(given) != 1:
            return Refusal(400, "there must be one Host header")
        host = given[0].lower()
        if host in self._hosts or _without_port(host) in self._hosts:
            return None
        return Refusal(421, "requests for this Host are not served")

    def _check_origin(self, headers: Headers) -> Refusal | None:
        """Refuse requests of web pages, including reads, unless their Origin is allowed."""
        if all(origin in self._origins for origin in headers.getlist("origin")):
            return None
        return Refusal(403, "requests from this Origin are not allowed")

    def _check_token(self, scope: Scope, headers: Headers) -> Refusal | None:
        if scope["path"] in OPEN and scope["method"] in SAFE:
            return None
        given = headers.getlist("authorization")
        challenge = {"WWW_Authenticate": "Bearer"}
        if not given:
            return Refusal(401, "the token is missing: send it as Authorization: Bearer TOKEN", challenge)
        if len(given) == 1 and hmac.compare_digest(given[0].encode("latin-1"), self._authorization):
            return None
        return Refusal(401, "the token is wrong", challenge)


def _check_method(scope: Scope) -> Refusal | None:
    if scope["method"] in METHODS:
        return None
    return Refusal(405, "this method is not allowed", {"Allow": ", ".join(sorted(METHODS))})


def _check_path(scope: Scope) -> Refusal | None:
    raw = scope.get("raw_path") or scope["path"].encode()
    if raw == b"/" or (_PATH.fullmatch(raw) and b".." not in raw):
        valid = _QUERY.fullmatch(scope["query_string"]) is not None
        return (
            None if valid else Refusal(400, "the query is too long, or has characters that must be encoded")
        )
    return Refusal(400, "the path has parts that are not names: letters, digits, '.', '_' and '-'")


def _check_length(headers: Headers, limit: int) -> Refusal | None:
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        return Refusal(400, "Content-Length must be a number")
    # A number with so many digits is too large; parsing it could take long.
    if len(declared) > 18 or int(declared) > limit:
        return Refusal(413, f"the body is larger than {limit} bytes")
    return None


def _without_port(host: str) -> str:
    """Return the host of a Host header.

    >>> _without_port("127.0.0.1:8090"), _without_port("[::1]:8090"), _without_port("[::1]")
    ('127.0.0.1', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _limit_body(receive: Receive, limit: int) -> Receive:
    """Count the received bytes, because a body sent in chunks does not declare its length."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise TooLargeError(limit)
        return message

    return counted
