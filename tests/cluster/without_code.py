"""A cluster without code and without logs, for tests of what is decided about jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.cluster.node_documents import NodeInfo


class AnyBundle:
    """A place for code that has whatever it is asked for."""

    def put(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        return {}

    def has(self, sha256: str) -> bool:
        return True

    def check_entry(self, sha256: str, entry: str) -> None:
        return

    def forget_others(self, used: Collection[str]) -> None:
        return


class NoLogs:
    """Logs that nobody has written."""

    def read(self, job: str, nodes: Mapping[str, NodeInfo], cursor: str, limit: int) -> dict[str, Any]:
        return {}
