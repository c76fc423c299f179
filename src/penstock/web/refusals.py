"""The line in the log that every refused request leaves. No header and no query: those have secrets."""

from __future__ import annotations

import structlog
from starlette.types import Scope

_LONGEST = 200

_log = structlog.get_logger("penstock.web")


def tell_refusal(scope: Scope, status: int, reason: str) -> None:
    """Log that a request was refused, and why."""
    raw = scope.get("raw_path") or scope["path"].encode()
    client = scope.get("client")
    _log.warning(
        "request refused",
        status=status,
        reason=reason[: 5 * _LONGEST],
        method=scope.get("method", scope["type"]),
        path=raw.decode("latin-1")[:_LONGEST],
        client=client[0] if client else "",
    )
