"""HTTP connections between the nodes for snapshots, and how fast they may send.

It sends, and reads answers; it must not know what a snapshot is, or which transfer comes next.
"""

from __future__ import annotations

import http.client
import json
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from penstock.backups.snapshots.snapshot_errors import TransferError
from penstock.backups.snapshots.transfer_format import compress_json, decompress_json

_BURST_SECONDS = 0.25
_LARGEST_BLOCK = 1 << 16
_SMALLEST_BLOCK = 256


class TokenBucket:
    """Lets ``rate`` bytes a second pass, and after a pause a quarter of a second's worth at once.

    >>> now = [0.0]
    >>> bucket = TokenBucket(1000, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    >>> for _ in range(10):
    ...     bucket.take(500)
    >>> now[0]  # 5,000 bytes, of which 250 could go at once
    4.75
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate is not None and rate <= 0:
            raise ValueError(f"a rate is more than 0 bytes a second, not {rate}")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._burst = (rate or 0.0) * _BURST_SECONDS
        self._tokens = self._burst
        self._seen = clock()

    @property
    def block(self) -> int:
        """How many bytes to send at once, so that the way is neither idle for long nor full for long."""
        if self._rate is None:
            return _LARGEST_BLOCK
        return max(_SMALLEST_BLOCK, min(_LARGEST_BLOCK, int(self._burst)))

    def take(self, count: int) -> None:
        """Wait until ``count`` bytes may go."""
        if self._rate is None:
            return
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._rate) - count
        self._seen = now
        # What is missing is waited for and not forgotten: sleeping longer than asked is made up for later,
        # as far as a burst goes.
        if self._tokens < 0:
            self._sleep(-self._tokens / self._rate)


MOST_ANSWER = 256 << 20
"""Of a list or a manifest."""
_MOST_WORDS = 2_000
_IDLE = 2.0
"""Servers close what was idle for five seconds: a connection must not be used again just then."""
_AGAIN = (408, 409, 429, 500, 502, 503, 504, 507)


class Answer:
    """What a supervisor answered, as long as nothing else is asked. Reading it raises TransferError."""

    def __init__(self, response: http.client.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self.status = response.status
        self.length = response.length
        """Bytes of the body; None if they are not told."""
        self.packed = response.headers.get("Content-Encoding") == "deflate"

    def read(self, size: int = -1, /) -> bytes:
        with _wire(self._url):
            data = self._response.read(None if size < 0 else size)
            if not data and size and self._response.length:
                # The library says so only when it is asked for everything.
                raise http.client.IncompleteRead(data, self._response.length)
            return data

    def readline(self, limit: int = -1, /) -> bytes:
        with _wire(self._url):
            return self._response.readline(limit)

    def whole(self, most: int) -> bytes:
        """All of it, unless it is more than ``most`` bytes."""
        data = bytearray()
        while block := self.read(1 << 16):
            data += block
            if len(data) > most:
                raise TransferError(f"{self._url} answered more than {most} bytes", again=False)
        return bytes(data)

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is left."""
        return self._response.isclosed()


class Connection:
    """One connection to a supervisor at a time, made anew when it broke. For one thread."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query or "@" in parts.netloc:
            raise TransferError(f"{url!r} is not where a supervisor answers: http://HOST:PORT", again=False)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._authorization = f"Bearer {token}"
        self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        self._used = time.monotonic()
        self.sent = 0
        """Bytes of all bodies that were sent."""

    def ask(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        """Ask something in JSON, and return the JSON that is answered. Raises TransferError."""
        body, headers = json_body(content)
        with self.asking(method, path, len(body), [body], headers) as answer:
            data = answer.whole(MOST_ANSWER)
        try:
            return json.loads(decompress_json(data, MOST_ANSWER) if answer.packed else data)
        except (ValueError, RecursionError):
            raise TransferError(f"{self.url} answered something that is no JSON", again=False) from None

    @contextmanager
    def asking(
        self, method: str, path: str, length: int, body: Iterable[bytes], headers: Mapping[str, str]
    ) -> Iterator[Answer]:
        """Ask something; gives the answer, whose body is for the caller to read. Raises TransferError.

        An answer whose body is not read to its end costs the connection.
        """
        if time.monotonic() - self._used > _IDLE or self._is_closed():
            self.close()
        head = {**headers, "Authorization": self._authorization, "Content-Length": str(length)}
        try:
            answer = self._answer(method, path, head, body)
            if not 200 <= answer.status < 300:
                raise self._refusal(answer)
            yield answer
        except BaseException:
            # There may be an answer on the way that is not for the next question.
            self.close()
            raise
        if not answer.is_read:
            self.close()
        self._used = time.monotonic()

    def _answer(self, method: str, path: str, head: Mapping[str, str], body: Iterable[bytes]) -> Answer:
        with _wire(self.url):
            self._http.putrequest(method, path, skip_accept_encoding=True)
            for name, value in head.items():
                self._http.putheader(name, value)
            self._http.endheaders()
        for block in body:
            try:
                with _wire(self.url):
                    self._http.send(block)
            except TransferError:
                # Who refuses a body answers before it is there, and hangs up.
                with suppress(TransferError), _wire(self.url):
                    return Answer(self._http.getresponse(), self.url)
                raise
            self.sent += len(block)
        with _wire(self.url):
            return Answer(self._http.getresponse(), self.url)

    def _refusal(self, answer: Answer) -> TransferError:
        try:
            told = str(json.loads(answer.whole(1 << 20))["error"])[:_MOST_WORDS]
        except (ValueError, RecursionError, TypeError, KeyError, TransferError):
            told = "no reason was given"
        return TransferError(
            f"{self.url} answered {answer.status}: {told}",
            again=answer.status in _AGAIN,
            status=answer.status,
        )

    def _is_closed(self) -> bool:
        """Whether the other side has hung up: there is something to read where nothing was asked."""
        return self._http.sock is not None and bool(select.select([self._http.sock], [], [], 0)[0])

    def close(self) -> None:
        """Hang up. What is asked next makes a new connection."""
        self._http.close()


def json_body(content: object) -> tuple[bytes, dict[str, str]]:
    """Write a question, and the headers that go with it."""
    if content is None:
        return b"", {}
    return compress_json(content), {"Content-Type": "application/json", "Content-Encoding": "deflate"}


@contextmanager
def _wire(url: str) -> Iterator[None]:
    """Say it plainly when a connection breaks."""
    try:
        yield
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        what = str(error) or type(error).__name__
        raise TransferError(f"{url} does not answer: {what}", again=True) from error
