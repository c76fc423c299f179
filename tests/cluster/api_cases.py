"""Requests that no master may grant, as functions of where it answers: any master can be held to them.

Everything goes through ``http.client``, which sends paths and headers as they are.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

EVIL = "http://evil.example"
NOBODY = "0" * 64

TRAVERSALS = {
    "plain": "../../../etc/passwd",
    "dots": "..",
    "dot": ".",
    "backslash": "..\\..\\etc",
    "encoded": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "encoded slash": "..%2f..%2fetc%2fpasswd",
    "double-encoded": "%252e%252e%252f%252e%252e%252fetc%252fpasswd",
    "overlong": "%c0%ae%c0%ae%c0%af",
    "null": "a%00b",
    "inside": "a..b",
    "newline": "a%0d%0aSet-Cookie:%20x=1",
}


@dataclass(frozen=True)
class Target:
    """A master that is put to the test."""

    url: str
    token: str
    state: Callable[[], Any]
    """What must be the same before and after: the jobs, the nodes, the bundles, the alarms."""
    refusals: Callable[[], list[Mapping[str, Any]]]
    """What was logged as refused so far, as dictionaries with ``reason``, ``method``, ``path``."""


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Operation:
    """A route of the OpenAPI document."""

    method: str
    path: str
    secured: bool

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters in its path."""
        return re.findall(r"\{(\w+)\}", self.path)

    def filled(self, **values: str) -> str:
        """Return the path with its parameters given; ordinary ones where none is."""
        ordinary = {name: NOBODY if name == "sha256" else "some" for name in self.parameters}
        return self.path.format(**{**ordinary, **values})


def ask(
    target: Target,
    method: str,
    path: str,
    *,
    token: str | None = "",
    body: bytes | Iterator[bytes] | None = None,
    **headers: str,
) -> Reply:
    """Send a request; ``token`` is the right one unless given, and left out when it is None."""
    place = urlsplit(target.url)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["Authorization"] = f"Bearer {token or target.token}"
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    try:
        connection.request(method, path, body=body, headers=given, encode_chunked=isinstance(body, Iterator))
        reply = connection.getresponse()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def operations(target: Target) -> list[Operation]:
    """All routes, so that a new one is put to the test too."""
    reply = ask(target, "GET", "/api/v1/openapi.json")
    assert reply.status == 200
    found = [
        Operation(method.upper(), path, bool(operation.get("security")))
        for path, methods in json.loads(reply.body)["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(found) >= 17
    return found


def expect_refused(
    target: Target,
    status: int | range,
    method: str,
    path: str,
    *,
    token: str | None = "",
    body: bytes | Iterator[bytes] | None = None,
    **headers: str,
) -> Reply:
    """Make a request that must be refused, be in the log, and change nothing."""
    before, logged = target.state(), len(target.refusals())
    reply = ask(target, method, path, token=token, body=body, **headers)
    statuses = (status,) if isinstance(status, int) else status
    assert reply.status in statuses, (reply.status, reply.body)
    assert set(json.loads(reply.body)["error"]) == {"code", "message"}
    assert b"Traceback" not in reply.body
    assert target.state() == before
    assert len(target.refusals()) > logged, "the refusal is not in the log"
    assert target.token not in json.dumps([dict(entry) for entry in target.refusals()[logged:]])
    assert target.token.encode() not in reply.body
    return reply


def check_no_token(target: Target) -> None:
    """Every route but those of health needs the token."""
    for operation in operations(target):
        if operation.secured:
            reply = expect_refused(target, 401, operation.method, operation.filled(), token=None)
            assert reply.headers["www-authenticate"] == "Bearer"
        else:
            assert operation.path in ("/livez", "/readyz", "/metrics")
    expect_refused(target, 401, "GET", "/api/v1/openapi.json", token=None)
    expect_refused(target, 401, "POST", "/metrics", token=None)


def check_wrong_token(target: Target) -> None:
    """A wrong token opens nothing, nor does a right one that is shown in another way."""
    right = target.token
    for wrong in ("x", right[:-1], right + "0", right.upper(), NOBODY, f"{right} {right}", "\xe9" * 64):
        for operation in operations(target):
            if operation.secured and wrong != right:
                expect_refused(target, 401, operation.method, operation.filled(), token=wrong)
    for shown in (right, f"Basic {right}", f"Token {right}", "Bearer", f"bearer  {right}"):
        expect_refused(target, 401, "GET", "/api/v1/jobs", token=None, Authorization=shown)
    expect_refused(target, 401, "GET", f"/api/v1/jobs?token={right}", token=None)


def check_wrong_host(target: Target) -> None:
    """A name that was made to lead here by somebody else is not answered, not even with the token."""
    for host in ("evil.example", f"evil.example:{urlsplit(target.url).port}", "127.0.0.1.evil.example", ""):
        for operation in operations(target):
            expect_refused(target, 421, operation.method, operation.filled(), Host=host)


def check_wrong_origin(target: Target) -> None:
    """A page of somebody else gets nothing: no method, no preflight, no header that would allow it."""
    for origin in (EVIL, "null", target.url + ".evil.example", ""):
        for operation in operations(target):
            reply = expect_refused(target, 403, operation.method, operation.filled(), Origin=origin)
            assert not [name for name in reply.headers if name.startswith("access-control-")]
    for method in ("OPTIONS", "TRACE", "PATCH", "PROPFIND"):
        path = "/api/v1/jobs/some"
        expect_refused(target, 403, method, path, Origin=EVIL, Access_Control_Request_Method="DELETE")
        expect_refused(target, 405, method, path)


def check_delete_from_browser(target: Target, job: str) -> None:
    """A job that runs cannot be ended by a page, not even by one that knows the token."""
    for origin in (EVIL, "null"):
        for path in (f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}?drain=true"):
            for token in ("", None):
                expect_refused(target, 403, "DELETE", path, token=token, Origin=origin)


def check_traversal(target: Target) -> None:
    """No parameter of any path takes what leads elsewhere, however it is written."""
    tried = 0
    for operation in operations(target):
        for name in operation.parameters:
            for what in TRAVERSALS.values():
                path = operation.filled(**{name: what})
                expect_refused(
                    target,
                    range(400, 500),
                    operation.method,
                    path,
                    body=b"{}",
                    Content_Type="application/json",
                )
                tried += 1
    assert tried >= 10 * len(TRAVERSALS)


def check_oversized(target: Target, document: int, bundle: int) -> None:
    """Bodies past the limits are refused: by what they declare, and by what comes."""
    for operation in operations(target):
        if operation.method in ("POST", "PUT"):
            put = "sha256" in operation.parameters
            limit = bundle if put else document
            headers = {
                "Content_Type": "application/zip" if put else "application/json",
                "X_Penstock_Signature": NOBODY,
            }
            for body in (b"x" * (limit + 1), _chunks(limit + (1 << 17))):
                expect_refused(target, 413, operation.method, operation.filled(), body=body, **headers)


def _chunks(size: int) -> Iterator[bytes]:
    while size > 0:
        yield b"x" * min(size, 1 << 16)
        size -= 1 << 16


def check_declared_only(target: Target) -> None:
    """What declares to be huge is refused before any of it comes."""
    for length in ("1000000000000", "9" * 18):
        expect_refused(target, 413, "PUT", f"/api/v1/bundles/{NOBODY}", Content_Length=length)


def check_tampered_bundle(target: Target, data: bytes, signature: str) -> None:
    """A bundle is kept only if it has the digest it is put under, and the cluster's signature."""
    digest = hashlib.sha256(data).hexdigest()
    other = data[:-1] + bytes([data[-1] ^ 1])
    cases = {
        "altered": (digest, signature, other),
        "altered, with its own digest": (hashlib.sha256(other).hexdigest(), signature, other),
        "unsigned": (digest, NOBODY, data),
        "of another digest": (NOBODY, signature, data),
        "cut": (digest, signature, data[: len(data) // 2]),
        "empty": (digest, signature, b""),
    }
    for what, (name, signed, body) in cases.items():
        path = f"/api/v1/bundles/{name}"
        headers = {"Content_Type": "application/zip", "X_Penstock_Signature": signed}
        reply = expect_refused(target, 422, "PUT", path, body=body, **headers)
        assert json.loads(reply.body)["error"]["code"] == "invalid", what
