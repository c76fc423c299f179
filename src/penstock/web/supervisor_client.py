"""The client of supervisors: fetches and uploads blobs, and reads logs."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.bundles.bundle_limits import MOST_PACKED
from penstock.bundles.bundle_signature import sha256_of
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import httpx

_MOST_LOGS = 64 << 20
_MOST_WORDS = 2_000


class SupervisorError(PenstockError):
    """A supervisor does not answer, or not as it should."""


class SupervisorClient:
    """Talks to the agents of all nodes; ``token`` is the node token. It may be used from any thread.

    It is a :class:`penstock.bundles.bundle_store.BlobTransport`. Most supervisors never use it, so it loads
    the HTTP library when it is used first.
    """

    def __init__(self, token: str, *, connect: float = 3.0, wait: float = 20.0) -> None:
        self._token = token
        self._connect = connect
        self._wait = wait

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        return httpx.Client(
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=httpx.Timeout(self._wait, connect=self._connect),
            # Servers close what was idle for five seconds: a connection must not be used again just then.
            limits=httpx.Limits(keepalive_expiry=2.0),
            # Neither a proxy of the environment nor a redirection may see the token.
            trust_env=False,
            follow_redirects=False,
            # Agents speak plain HTTP. The certificates of the whole world are not loaded for them.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    def put(self, url: str, sha256: str, data: bytes) -> None:
        """Have the supervisor at a URL keep a blob. Raises SupervisorError."""
        self._ask("PUT", url, f"/blobs/{sha256}", most=_MOST_LOGS, content=data)

    def get(self, url: str, sha256: str) -> bytes:
        """Fetch a blob; one that is too large or is another is refused. Raises SupervisorError."""
        data = self._ask("GET", url, f"/blobs/{sha256}", most=MOST_PACKED)
        if sha256_of(data) != sha256:
            raise SupervisorError(f"{url} sent other content for blob {sha256}")
        return data

    def logs(
        self, url: str, job: str, cursor: str = "", limit: int = 200
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the next lines of a job from one node, and the cursor behind them. Raises
        SupervisorError."""
        asked = {"job": job, "cursor": cursor, "limit": str(limit)}
        data = self._ask("GET", url, "/logs", most=_MOST_LOGS, params=asked)
        try:
            answer = json.loads(data)
            lines, behind = answer["lines"], answer["cursor"]
        except (ValueError, RecursionError, TypeError, KeyError):
            lines, behind = None, None
        if not isinstance(lines, list) or not isinstance(behind, str):
            raise SupervisorError(f"{url} did not answer with log lines")
        return [line for line in lines if isinstance(line, dict)], behind

    def _ask(self, method: str, url: str, path: str, *, most: int, **more: Any) -> bytes:
        with self._answer(method, url.rstrip("/") + path, **more) as answer:
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > most:
                    raise SupervisorError(f"{url} answered more than {most} bytes")
            if answer.is_success:
                return bytes(body)
        raise SupervisorError(f"{url} answered {answer.status_code}: {_error_in(bytes(body))}")

    @contextmanager
    def _answer(self, method: str, url: str, **more: Any) -> Iterator[httpx.Response]:
        import httpx

        try:
            with self._http.stream(method, url, **more) as answer:
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = str(error) or type(error).__name__
            raise SupervisorError(f"{url.partition('?')[0]} does not answer: {what}") from error

    def close(self) -> None:
        if "_http" in self.__dict__:
            self._http.close()

    def __enter__(self) -> SupervisorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _error_in(body: bytes) -> str:
    """Return what an answer says of what was wrong."""
    try:
        return str(json.loads(body)["error"])[:_MOST_WORDS]
    except (ValueError, RecursionError, TypeError, KeyError):
        return "no reason was given"
