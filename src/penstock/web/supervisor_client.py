"""The client of supervisors: fetches and uploads blobs, and reads logs."""

from __future__ import annotations

from typing import Any

from penstock.bundles.bundle_limits import MOST_PACKED
from penstock.bundles.bundle_signature import sha256_of
from penstock.node_client import NodeClient, NodeRequestError

_MOST_LOGS = 64 << 20


class SupervisorClient(NodeClient):
    """Sends requests to the supervisors of all nodes. It may be used from any thread.

    Implements :class:`penstock.bundles.bundle_store.BlobTransport`.
    """

    def put(self, url: str, sha256: str, data: bytes) -> None:
        """Upload a blob to the supervisor at a URL. Raises NodeRequestError."""
        self.read("PUT", _blob(url, sha256), content=data)

    def get(self, url: str, sha256: str) -> bytes:
        """Fetch a blob. Raises NodeRequestError, also when it is too large or has other content."""
        data = self.read("GET", _blob(url, sha256), most=MOST_PACKED)
        if sha256_of(data) != sha256:
            raise NodeRequestError(f"{url} sent other content for blob {sha256}", again=False)
        return data

    def logs(
        self, url: str, job: str, cursor: str = "", limit: int = 200
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the next log lines of a job from one node, and the next cursor. Raises NodeRequestError."""
        query = {"job": job, "cursor": cursor, "limit": str(limit)}
        answer = self.read_json("GET", f"{url.rstrip('/')}/logs", most=_MOST_LOGS, params=query)
        try:
            lines, next_cursor = answer["lines"], answer["cursor"]
        except (TypeError, KeyError):
            lines, next_cursor = None, None
        if not isinstance(lines, list) or not isinstance(next_cursor, str):
            raise NodeRequestError(f"{url} did not answer with log lines", again=False)
        return [line for line in lines if isinstance(line, dict)], next_cursor


def _blob(url: str, sha256: str) -> str:
    return f"{url.rstrip('/')}/blobs/{sha256}"
