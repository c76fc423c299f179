"""Records posted to a web service, in chunks with keys by which it can tell a repetition."""

from __future__ import annotations

import email.utils
import http.client
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.connect import checking
from penstock.connect.json_text import to_json
from penstock.connect.staged import Staging, StagingWriter
from penstock.errors import ConnectorError, SettingError, UnstorableValueError, cause_of
from penstock.graph.ends import Receipt, Sink, SinkWriter, WriteContext
from penstock.record import Record

_AGAIN = frozenset({408, 425, 429, *range(500, 600)})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_SHOWN = 300
"""How many bytes of an answer an error shows."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpSink(Sink):
    """Posts records as JSON arrays of ``{"key": …, "value": …, "ts": …}``, ``batch_size`` at a time.

    Each request has an idempotency key that is the same when it is repeated, after an error or after a
    crash: a service that applies each key once gets each record exactly once. Errors that pass (no
    connection, 429, 5xx) are tried again ``retries`` times, after growing pauses or when the service says
    so; any other answer but 2xx ends the job, and the next run begins with that batch.
    """

    transactional = True

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        batch_size: int = 500,
        retries: int = 5,
        timeout: float = 30.0,
        headers: Mapping[str, str] | None = None,
        idempotency_header: str = "Idempotency-Key",
        folder: str | Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.url, self._shown_url = url, _shown_url(url)
        checking.one_of("HttpSink", "method", method, ("POST", "PUT", "PATCH"))
        checking.whole("HttpSink", "batch_size", batch_size)
        checking.whole("HttpSink", "retries", retries, least=0)
        checking.seconds("HttpSink", "timeout", timeout)
        self.method = method
        self.batch_size = batch_size
        self.retries = retries
        self.timeout = timeout
        self.headers = _checked_headers({**(headers or {}), idempotency_header: ""})
        self.idempotency_header = idempotency_header
        self._staging = Staging(folder)
        self._sleep, self._chance = sleep, chance

    def prepare(self) -> None:
        """Make the folder in which records wait."""
        self._staging.prepare()

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write down what will be posted."""
        return _JsonStagingWriter(self._staging.folder, context)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Post a batch, unless all of it has been posted."""
        self._staging.once(receipts, lambda records: self._post_all(batch, receipts[0], records))

    def discard(self, receipts: Sequence[Receipt]) -> None:
        """Remove what will not be posted."""
        self._staging.discard(receipts)

    def describe(self) -> dict[str, Any]:
        """Return where to and how, without anything that may be a secret."""
        return {"url": self._shown_url, "method": self.method, "headers": sorted(self.headers)}

    def _post_all(self, batch: int, receipt: Receipt, records: Iterator[Record]) -> None:
        # A job that is started from scratch counts its batches anew: what an earlier one has posted
        # under the same numbers has another task in its receipt.
        first = f"{quote(receipt['job'])}/{quote(receipt['vertex'])}/{batch}/{receipt['task'][:12]}"
        number = 0
        while chunk := list(islice(records, self.batch_size)):
            body = "[" + ",".join(record.value for record in chunk) + "]"
            self._post(receipt, f"{first}/{number}", body.encode())
            number += 1

    def _post(self, receipt: Receipt, key: str, body: bytes) -> None:
        for attempt in range(self.retries + 1):
            answer = self._try(key, body)
            if answer.ok:
                return
            if not answer.passing:
                break
            if attempt < self.retries:
                self._sleep(self._pause(attempt, answer.wait))
        tries = f" after {attempt + 1} tries" if attempt else ""
        raise ConnectorError(
            receipt["job"],
            receipt["vertex"],
            f"{self.method} {self._shown_url} failed{tries}: {answer.says}. The records are kept: see to the"
            " service and start the job again",
        )

    def _pause(self, attempt: int, wait: float | None) -> float:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
        # Half of it is left to chance, so that many jobs do not come back at the same moment.
        pause *= 0.5 + self._chance() / 2
        return pause if wait is None else min(_LONGEST_PAUSE, max(pause, wait))

    def _try(self, key: str, body: bytes) -> _Answer:
        headers = {"Content-Type": "application/json", **self.headers, self.idempotency_header: key}
        request = urllib.request.Request(self.url, body, headers, method=self.method)  # noqa: S310 - http(s)
        try:
            with _opener().open(request, timeout=self.timeout) as answer:
                answer.read()
                return _Answer(ok=True)
        except urllib.error.HTTPError as error:
            with error:
                says = f"{error.code} {error.reason} {_shown_body(error)}".strip()
                return _Answer(says=says, passing=error.code in _AGAIN, wait=_wait(error.headers))
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            says = cause_of(cause) if isinstance(cause, BaseException) else str(cause)
            return _Answer(says=says, passing=not isinstance(cause, ssl.SSLCertVerificationError))

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver posts: what the headers hold is not written into the job's folder.
        return {**self.__dict__, "headers": {}, "url": self._shown_url, "_sleep": None, "_chance": None}


class _Answer:
    def __init__(
        self, *, ok: bool = False, says: str = "", passing: bool = False, wait: float | None = None
    ) -> None:
        self.ok, self.says, self.passing, self.wait = ok, says, passing, wait


class _JsonStagingWriter(StagingWriter):
    def write(self, records: list[Record]) -> None:
        texts = []
        for record in records:
            try:
                fields = {"key": record.key, "value": record.value, "ts": record.ts}
                texts.append(Record(None, to_json(fields)))
            except UnstorableValueError as error:
                if self._context.reject is None:
                    raise
                self._context.reject(record, str(error))
        super().write(texts)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without a body: the user names the right address instead."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect)


def _shown_url(url: Any) -> str:
    """Check an address, and return it without what may be a secret."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        sound = sound and not re.search(r"[\s\x00-\x1f\x7f]", url)
    except (ValueError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise SettingError("HttpSink: url takes an address that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise SettingError("HttpSink: url has a user or a password in it: give them in headers instead")
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """Check headers. Their values are never shown."""
    for name, value in headers.items():
        if not isinstance(name, str) or _HEADER.fullmatch(name) is None:
            raise SettingError(f"HttpSink: {name!r:.60} is not the name of a header")
        if not isinstance(value, str) or re.search(r"[\r\n\x00]", value):
            raise SettingError(f"HttpSink: the header {name} takes one line of text")
    return {name: value for name, value in headers.items() if value}


def _shown_body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(_SHOWN).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""


def _wait(headers: Any) -> float | None:
    """Return for how long the service wants to be left alone."""
    given = headers.get("Retry-After") if headers is not None else None
    if given is None:
        return None
    if given.strip().isdigit():
        return float(given)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
