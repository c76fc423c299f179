"""The line in the log that every refused request leaves. No header and no query: those have secrets."""

from __future__ import annotations

from starlette.types import Scope

from penstock.logs import get_logger

_MAX_LOGGED = 200

_log = get_logger(__name__)


def log_refusal(scope: Scope, status: int, reason: str) -> None:
    """Log that a request was refused, and why."""
    raw = scope.get("raw_path") or scope["path"].encode()
    client = scope.get("client")
    _log.warning(
        "request refused",
        status=status,
        reason=reason[: 5 * _MAX_LOGGED],
        method=scope.get("method", scope["type"]),
        path=raw.decode("latin-1")[:_MAX_LOGGED],
        client=client[0] if client else "",
    )
