"""Forwards requests from a follower to the leader, so that a client may ask any master."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.cluster.client_requests import NotLeaderError
from penstock.master.master_service import MasterService
from penstock.process_logs.process_log import get_logger
from penstock.web.api_responses import RETRY_AFTER, error_answer

PREFIX = "/api/v1/"
LOCAL = frozenset({"/api/v1/openapi.json"})
FORWARDED = "x-penstock-forwarded"
"""Marks a request that a master has forwarded already; it is not forwarded again."""

_REQUEST_HEADERS = ("accept", "authorization", "content-length", "content-type", "x-penstock-signature")
_RESPONSE_HEADERS = ("allow", "content-length", "content-type", "retry-after", "www-authenticate")
_TIMEOUT = httpx.Timeout(60.0, connect=2.0)

_log = get_logger(__name__)


class LeaderForwarding:
    """Serves requests while this master leads, and forwards them to the leader otherwise."""

    def __init__(self, app: ASGIApp, *, service: MasterService) -> None:
        self._app = app
        self._service = service
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or forward it."""
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                await self._close()
            return
        if not scope["path"].startswith(PREFIX) or scope["path"] in LOCAL:
            await self._app(scope, receive, send)
            return
        body = _Body(receive)
        url = self._service.leader_url()
        if self._service.is_leader():
            try:
                await self._app(scope, body.receive, send)
                return
            except NotLeaderError as error:
                # This master has just lost the lead, and has done nothing: the request can be forwarded.
                url = error.url
        await self._forward(url, scope, body, send)

    async def _forward(self, url: str, scope: Scope, body: _Body, send: Send) -> None:
        headers = Headers(scope=scope)
        if not url or FORWARDED in headers:
            message = "there is no leader at the moment: try again"
            answer = error_answer(503, message, "no_leader", Retry_After=RETRY_AFTER)
            await answer(scope, body.receive, send)
            return
        try:
            response = await self._ask(url, scope, headers, body)
        except _ClientGoneError:
            return
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.InvalidURL,
            httpx.UnsupportedProtocol,
        ) as error:
            _log.warning("leader not reached", url=url, error=repr(error))
            message = f"the leader {url} cannot be reached: try again"
            answer = error_answer(502, message, "leader_unreachable", Retry_After=RETRY_AFTER)
            await answer(scope, body.receive, send)
        except httpx.HTTPError as error:
            _log.warning("leader lost", url=url, error=repr(error))
            message = (
                f"leader {url} did not answer: the change may have been made; check before you repeat it"
            )
            await error_answer(502, message, "leader_lost")(scope, body.receive, send)
        else:
            await _send_response(response, send)

    async def _ask(self, url: str, scope: Scope, headers: Headers, body: _Body) -> httpx.Response:
        if self._client is None:
            # Proxy settings of the environment must not send the token to another host.
            self._client = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)
        query = scope["query_string"].decode("latin-1")
        request = self._client.build_request(
            scope["method"],
            url.rstrip("/") + scope["path"] + (f"?{query}" if query else ""),
            headers={
                **{name: headers[name] for name in _REQUEST_HEADERS if name in headers},
                "accept-encoding": "identity",
                FORWARDED: "1",
            },
            content=body.chunks() if _has_body(headers) else None,
        )
        return await self._client.send(request, stream=True)

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class _ClientGoneError(Exception):
    """The client disconnected while it was sending its request."""


class _Body:
    """The body of a request, which keeps what was received, so that it can be read again from the start."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received: list[bytes] = []
        self._complete = False

    async def receive(self) -> Message:
        """Receive the next message, and keep its part of the body."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._received.append(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        return message

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the complete body as it arrives."""
        for chunk in self._received:
            yield chunk
        while not self._complete:
            message = await self._receive()
            if message["type"] != "http.request":
                raise _ClientGoneError
            self._complete = not message.get("more_body", False)
            yield message.get("body", b"")


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def _send_response(response: httpx.Response, send: Send) -> None:
    try:
        headers = [
            (name.encode(), response.headers[name].encode("latin-1"))
            for name in _RESPONSE_HEADERS
            if name in response.headers
        ]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for chunk in response.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        await response.aclose()
