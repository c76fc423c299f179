"""HTTP requests to the nodes of a cluster: token, time limits, kept connections and errors.

The HTTP library is loaded by the first request: most supervisors and workers never make one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import PenstockError

if TYPE_CHECKING:
    import httpx

# httpx imports its own command line where click and rich are installed: as much again as httpx itself, in
# every process. It does without where that cannot be imported.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_IDLE = 2.0
"""Servers close what was idle for five seconds: a connection must not be used again just then."""
_MOST_ANSWER = 256 << 20
_MOST_REFUSAL = 1 << 20
_MOST_WORDS = 2_000
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 507})


class NodeRequestError(PenstockError):
    """A node does not answer, or refuses a request; ``again`` tells whether a later try can succeed."""

    def __init__(self, message: str, *, again: bool, status: int | None = None) -> None:
        self.again = again
        self.status = status
        """What the node answered, if it did."""
        super().__init__(message)


def http_client(token: str, *, timeout: float, connect: float, certificates: bool = False) -> httpx.Client:
    """Make an HTTP client that shows the token to the servers it is used for and to no others."""
    import ssl

    import httpx

    return httpx.Client(
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx.Timeout(timeout, connect=connect),
        limits=httpx.Limits(keepalive_expiry=_IDLE),
        # Neither a proxy of the environment nor a redirection may see the token.
        trust_env=False,
        follow_redirects=False,
        # Nodes speak plain HTTP, and loading the certificates of all authorities takes longer than a request.
        verify=certificates or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )


class NodeClient:
    """Makes requests to supervisors; ``token`` is the node token. It may be used from any thread."""

    def __init__(self, token: str, *, connect: float = 3.0, timeout: float = 20.0) -> None:
        self._token = token
        self._connect = connect
        self._timeout = timeout

    @cached_property
    def _http(self) -> httpx.Client:
        return http_client(self._token, timeout=self._timeout, connect=self._connect)

    @contextmanager
    def stream(self, method: str, url: str, **options: Any) -> Iterator[httpx.Response]:
        """Make a request and give the answer, whose body the caller reads. Raises NodeRequestError.

        An answer whose body is not read to its end costs the connection.
        """
        import httpx

        try:
            with self._http.stream(method, url, **options) as answer:
                if not answer.is_success:
                    raise _refusal(url, answer)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = str(error) or type(error).__name__
            raise NodeRequestError(f"{_node(url)} does not answer: {what}", again=True) from error

    def read(self, method: str, url: str, *, most: int = _MOST_ANSWER, **options: Any) -> bytes:
        """Make a request and return the body of the answer. Raises NodeRequestError."""
        body = bytearray()
        with self.stream(method, url, **options) as answer:
            for block in answer.iter_bytes():
                body += block
                if len(body) > most:
                    raise NodeRequestError(f"{_node(url)} answered more than {most} bytes", again=False)
        return bytes(body)

    def read_json(self, method: str, url: str, **options: Any) -> Any:
        """Make a request and return the JSON of the answer. Raises NodeRequestError."""
        try:
            return json.loads(self.read(method, url, **options))
        except (ValueError, RecursionError):
            raise NodeRequestError(f"{_node(url)} answered something that is no JSON", again=False) from None

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _node(url: str) -> str:
    """Return the part of a URL that names the server.

    >>> _node("http://n1:7000/logs?job=a")
    'http://n1:7000'
    """
    return "/".join(url.split("/", 3)[:3])


def _refusal(url: str, answer: httpx.Response) -> NodeRequestError:
    import httpx

    body = bytearray()
    with suppress(httpx.HTTPError):
        for block in answer.iter_bytes():
            body += block
            if len(body) > _MOST_REFUSAL:
                break
    try:
        reason = str(json.loads(body)["error"])[:_MOST_WORDS]
    except (ValueError, RecursionError, TypeError, KeyError):
        reason = "no reason was given"
    status = answer.status_code
    return NodeRequestError(
        f"{_node(url)} answered {status}: {reason}", again=status in _AGAIN, status=status
    )
