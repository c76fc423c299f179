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

_TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)})
_TOO_LARGE = 413
_SHOWN_BYTES = 300
"""How many bytes of a response an error message shows."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpSink(StagedSink):
    """Posts records as JSON arrays of ``{"key": …, "value": …, "ts": …}``, ``batch_size`` at a time.

    Each request has an idempotency key, which stays the same when the request is repeated after an error or a
    crash: a service that applies each key once applies each record exactly once. A request that is too large
    for the service (413) is split into halves, each with a key of its own. Transient errors (no connection,
    429, 5xx) are retried up to ``retries`` times, with growing pauses or after the time that the service
    requests; any other response but 2xx ends the job, and the next run begins with that batch.
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
        self.url, self._shown_url = url, _redacted_url(url)
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
        """Return a writer that stages the records as JSON."""
        return _JsonStagingWriter(self._staging.folder, context, self.batch_size, self.synced)

    def commit(self, batch: int, receipts: Sequence[Receipt]) -> None:
        """Post a batch, unless it has been posted completely."""
        self._staging.deliver_once(
            receipts, lambda records: self._post_all(batch, receipts, records), synced=self.synced
        )
        self._split_keys_file(receipts).unlink(missing_ok=True)

    def describe(self) -> dict[str, Any]:
        """Return the sink's settings, without possible secrets."""
        return {
            "url": self._shown_url,
            "method": self.method,
            "headers": sorted(self.headers),
            "folder": self._staging.described,
        }

    def _post_all(self, batch: int, receipts: Sequence[Receipt], records: Iterator[Record]) -> None:
        # A service ignores a key that it has seen, so a key must always stand for the same records: use the
        # batch size that was set when the batch was staged.
        size = receipts[0].get("chunk", self.batch_size)
        id = BatchNumber(batch, receipts).id
        split_keys = _SplitKeys(self._split_keys_file(receipts))
        number = 0
        while chunk := list(islice(records, size)):
            self._post_chunk(receipts[0], f"{id}/{number}", chunk, split_keys)
            number += 1

    def _split_keys_file(self, receipts: Sequence[Receipt]) -> Path:
        return self._staging.sibling(receipts, ".halved")

    def _post_chunk(self, receipt: Receipt, key: str, chunk: list[Record], split_keys: _SplitKeys) -> None:
        """Post records under a key, or if they are too large, in halves under two derived keys."""
        if key not in split_keys:
            body = "[" + ",".join(record.value for record in chunk) + "]"
            if self._post(receipt, key, body.encode(), can_split=len(chunk) > 1):
                return
            split_keys.add(key)
        middle = len(chunk) // 2
        self._post_chunk(receipt, f"{key}.0", chunk[:middle], split_keys)
        self._post_chunk(receipt, f"{key}.1", chunk[middle:], split_keys)

    def _post(self, receipt: Receipt, key: str, body: bytes, *, can_split: bool) -> bool:
        """Post a request with retries; return False if it is too large and can be split."""
        attempt = 0
        while not (answer := self._try(key, body)).ok:
            if answer.too_large and can_split:
                return False
            if not answer.transient or not self._retries.pause(attempt, answer.retry_after):
                break
            attempt += 1
        else:
            return True
        tries = f" after {attempt + 1} tries" if attempt else ""
        raise ConnectorError(
            receipt["job"],
            receipt["vertex"],
            f"{self.method} {self._shown_url} failed{tries}: {answer.reason}. The records are kept: check "
            "the service and start the job again",
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
                return _Answer(
                    reason=f"{error.code} {error.reason} {_shown_body(error)}".strip(),
                    transient=error.code in _TRANSIENT_STATUSES,
                    retry_after=_retry_after(error.headers),
                    too_large=error.code == _TOO_LARGE,
                )
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            reason = cause_of(cause) if isinstance(cause, BaseException) else str(cause)
            return _Answer(reason=reason, transient=not isinstance(cause, ssl.SSLCertVerificationError))

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver posts. Secrets in the headers must not be written into the job's folder.
        return {**self.__dict__, "headers": {}, "url": self._shown_url}


@dataclass(frozen=True)
class _Answer:
    ok: bool = False
    reason: str = ""
    transient: bool = False
    retry_after: float = 0.0
    too_large: bool = False


class _SplitKeys:
    """The keys whose records are posted in halves, stored before the first half is posted.

    A service that has received one half must not be sent the whole later, even if it then accepts more.
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
    """Makes a redirect an error: urllib would turn a redirected POST into a GET without a body."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect)


def _redacted_url(url: Any) -> str:
    """Check a URL, and return it without its query, which may contain secrets."""
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
    """Check headers, without showing their values in errors."""
    for name, value in headers.items():
        if not isinstance(name, str) or _HEADER.fullmatch(name) is None:
            raise SettingError(f"HttpSink: {name!r:.60} is not the name of a header")
        if not isinstance(value, str) or re.search(r"[\r\n\x00]", value):
            raise SettingError(f"HttpSink: the header {name} takes one line of text")
    return {name: value for name, value in headers.items() if value}


def _shown_body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(_SHOWN_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""


def _retry_after(headers: Any) -> float:
    """Return the seconds in the ``Retry-After`` header, or 0 without one."""
    given = headers.get("Retry-After", "") if headers is not None else ""
    if given.strip().isdigit():
        return float(given)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
