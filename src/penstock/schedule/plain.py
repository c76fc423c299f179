"""Snapshots as JSON: for a user's strategy in its own process, and for clusters described in a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import cast

from penstock.cluster.codec import of_plain
from penstock.schedule.model import Snapshot


def write_question(strategy: str, snapshot: Snapshot, demands: tuple[str, ...]) -> bytes:
    """Write what the process of a user's strategy reads."""
    question = {"strategy": strategy, "snapshot": asdict(snapshot), "demands": list(demands)}
    return json.dumps(question, separators=(",", ":")).encode()


def read_snapshot(given: object) -> Snapshot:
    """Read a snapshot from what JSON has of it; raises DocumentError.

    >>> read_snapshot({"nodes": [{"name": "n", "cores": 2, "memory": 1024}], "tasks": []}).nodes[0].cores
    2.0
    """
    return cast(Snapshot, of_plain(Snapshot, given))
