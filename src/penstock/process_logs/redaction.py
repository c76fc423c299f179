"""Redaction of secrets: registered secrets are replaced in every log line."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"token|password|passwd|secret|authorization|credential|cookie|(?<![a-z])keys?(?![a-z])"
)
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BEARER = re.compile(r"(?i)\b(bearer)\s+[\w.~+/=-]+")
SHORTEST_SECRET = 8

_secrets: set[str] = set()


def register_secret(secret: str) -> None:
    """Register a secret to be replaced in all log lines."""
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"a secret of fewer than {SHORTEST_SECRET} characters would match ordinary text")
    _secrets.add(secret)


def is_secret_name(name: str) -> bool:
    """Return whether a name looks like that of a secret.

    >>> is_secret_name("nodeToken"), is_secret_name("monkey")
    (True, False)
    """
    return _SECRET_NAME.search(_CAPITAL.sub("_", name).lower()) is not None


def redact(text: str) -> str:
    """Replace the secrets in a text.

    >>> redact("GET / with Authorization: Bearer 6f6e65")
    'GET / with Authorization: Bearer [redacted]'
    """
    # Longest first: one secret may be part of another.
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return _BEARER.sub(rf"\1 {REDACTED}", text)
