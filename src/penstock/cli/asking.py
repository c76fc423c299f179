"""Asks the masters of a cluster by HTTP: enough to see whether they are up, without a library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProbeAnswer:
    """What a master said."""

    content: Any
    """From JSON, or the text itself."""


def probe_url(url: str, *, token: str = "", timeout: float = 2.0) -> ProbeAnswer | None:
    """Read something; None when nobody answers, or not with what was asked for."""
    # Masters and supervisors are commands as well, and would carry these along for nothing.
    from http.client import HTTPException
    from urllib.request import ProxyHandler, Request, build_opener

    # A proxy for the world outside has no business between processes of a cluster.
    opener = build_opener(ProxyHandler({}))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(url, headers=headers)  # noqa: S310 - the scheme is ours
    try:
        with opener.open(request, timeout=timeout) as response:
            return ProbeAnswer(_content(response.read()))
    except (OSError, HTTPException, ValueError):
        return None


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
