"""Posts records to a web service in chunks, with idempotency keys."""

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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock import setting_values
from penstock.connect.retries import Retries
from penstock.connect.sink_staging import BatchNumber, StagedSink, StagingWriter
from penstock.connect.value_conversion import to_json
from penstock.errors import ConnectorError, SettingError, UnstorableValueError, cause_of
from penstock.graph.connector_api import Receipt, SinkWriter, WriteContext
from penstock.local_files import write_private
from penstock.record import Record

_AGAIN = frozenset({408, 425, 429, *range(500, 600)})
_TOO_LARGE = 413
_SHOWN = 300
"""How many bytes of an answer an error shows."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpSink(StagedSink):
    """Posts records as JSON arrays of ``{"key": …, "value": …, "ts": …}``, ``batch_size`` at a time.

    Each request has an idempotency key that is the same when it is repeated, after an error or after a
    crash: a service that applies each key once gets each record exactly once. What is too large for the
    service (413) is posted in halves, each under a key of its own. Errors that pass (no
    connection, 429, 5xx) are tried again ``retries`` times, after growing pauses or when the service says
    so; any other answer but 2xx ends the job, and the next run begins with that batch.
    """

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
        super().__init__("HttpSink", folder)
        self.url, self._shown_url = url, _shown_url(url)
        setting_values.check_choice("HttpSink", "method", method, ("POST", "PUT", "PATCH"))
        setting_values.check_whole_number("HttpSink", "batch_size", batch_size)
        setting_values.check_seconds("HttpSink", "timeout", timeout)
        self.method = method
        self.batch_size = batch_size
        self._retries = Retries("HttpSink", retries, sleep, chance)
        self.timeout = timeout
        self.headers = _checked_headers({**(headers or {}), idempotency_header: ""})
        self.idempotency_header = idempotency_header

    def writer(self, context: WriteContext) -> SinkWriter:
        """Write down what will be posted."""
        return _JsonStagingWriter(self._staging.folder, context, self.batch_size, self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Post a batch, unless all of it has been posted."""
        self._staging.deliver_once(
            receipts, lambda records: self._post_all(batch, receipts, records), synced=self.synced
        )
        self._halved_file(receipts).unlink(missing_ok=True)

    def describe(self) -> dict[str, Any]:
        """Return where to and how, without anything that may be a secret."""
        return {
            "url": self._shown_url,
            "method": self.method,
            "headers": sorted(self.headers),
            "folder": self._staging.described,
        }

    def _post_all(self, batch: int, receipts: Sequence[Receipt], records: Iterator[Record]) -> None:
        # A service that knows a key takes its records for applied: a key stands for the same records for
        # ever, whatever size of requests is asked for meanwhile.
        size = receipts[0].get("chunk", self.batch_size)
        id = BatchNumber(batch, receipts).id
        halved = _Halved(self._halved_file(receipts))
        number = 0
        while chunk := list(islice(records, size)):
            self._post_chunk(receipts[0], f"{id}/{number}", chunk, halved)
            number += 1

    def _halved_file(self, receipts: Sequence[Receipt]) -> Path:
        return self._staging.beside(receipts, ".halved")

    def _post_chunk(self, receipt: Receipt, key: str, chunk: list[Record], halved: _Halved) -> None:
        """Post records under a key, or halves of them under two others if they are too large."""
        if key not in halved:
            body = "[" + ",".join(record.value for record in chunk) + "]"
            if self._post(receipt, key, body.encode(), may_be_halved=len(chunk) > 1):
                return
            halved.add(key)
        middle = len(chunk) // 2
        self._post_chunk(receipt, f"{key}.0", chunk[:middle], halved)
        self._post_chunk(receipt, f"{key}.1", chunk[middle:], halved)

    def _post(self, receipt: Receipt, key: str, body: bytes, *, may_be_halved: bool) -> bool:
        """Post a request; return whether the service has taken it, and not refused it as too large."""
        attempt = 0
        while not (answer := self._try(key, body)).ok:
            if answer.too_large and may_be_halved:
                return False
            if not answer.passing or not self._retries.pause(attempt, answer.wait):
                break
            attempt += 1
        else:
            return True
        tries = f" after {attempt + 1} tries" if attempt else ""
        raise ConnectorError(
            receipt["job"],
            receipt["vertex"],
            f"{self.method} {self._shown_url} failed{tries}: {answer.says}. The records are kept: check the "
            "service and start the job again",
        )

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
                return _Answer(
                    says=says,
                    passing=error.code in _AGAIN,
                    wait=_wait(error.headers),
                    too_large=error.code == _TOO_LARGE,
                )
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            says = cause_of(cause) if isinstance(cause, BaseException) else str(cause)
            return _Answer(says=says, passing=not isinstance(cause, ssl.SSLCertVerificationError))

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver posts: what the headers hold is not written into the job's folder.
        return {**self.__dict__, "headers": {}, "url": self._shown_url}


@dataclass(frozen=True)
class _Answer:
    ok: bool = False
    says: str = ""
    passing: bool = False
    wait: float = 0.0
    too_large: bool = False


class _Halved:
    """The keys whose records are posted as halves: written down before a half is posted, and kept with them.

    A service that takes more at once later must not be sent the whole of what it has a half of.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._keys = dict.fromkeys(file.read_text().splitlines() if file.exists() else ())

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys[key] = None
        write_private(self._file, "".join(f"{one}\n" for one in self._keys))


class _JsonStagingWriter(StagingWriter):
    def __init__(self, folder: Path, context: WriteContext, chunk: int, synced: bool) -> None:
        super().__init__(folder, context, synced=synced)
        self._chunk = chunk

    def finish(self) -> Receipt | None:
        receipt = super().finish()
        return None if receipt is None else {**receipt, "chunk": self._chunk}

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
        raise SettingError("HttpSink: url contains a user or a password: give them in headers instead")
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


def _wait(headers: Any) -> float:
    """Return for how many seconds the service wants no request; 0 if it does not say."""
    given = headers.get("Retry-After", "") if headers is not None else ""
    if given.strip().isdigit():
        return float(given)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
