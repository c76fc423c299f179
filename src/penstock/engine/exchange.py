"""Keyed edges: what is the same before the shuffle and behind it.

Spark shuffles parcels, not records: a parcel holds, as columns, all that one task has for one bucket of
one vertex. Values are grouped by key, or merged where the state allows it, before they are sent, and a
column that a vertex does not use is not sent at all. The outbox makes parcels, the inbox opens them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.blueprint import VertexSpec
from penstock.engine.failure import Recover
from penstock.graph.tasks import CombiningTask
from penstock.graph.windows import CountWindow
from penstock.record import Record

Counters = tuple[int, ...]
Address = tuple[int, str, Counters]
"""Vertex, port and loop counters. Records with different counters are never mixed, so that what is made
of them has counters as exact as their own."""

Recovers = Callable[[int, Counters], Recover]
"""Says how a vertex copes with a record that it cannot work on."""


def merges(spec: VertexSpec) -> bool:
    """Whether records for a vertex may be merged before they are sent."""
    return isinstance(spec.operator, CombiningTask) and not isinstance(spec.window, CountWindow)


def merge_one(task: CombiningTask, into: dict[Any, Any], key: Any, partial: Any) -> None:
    """Merge one partial result into those of other keys."""
    into[key] = task.merge(into[key], partial) if key in into else partial


def latest(stamps: dict[Any, float], records: list[Record]) -> None:
    """Keep the newest time of each key."""
    for key, _, ts in records:
        if ts is not None and ts > stamps.get(key, float("-inf")):
            stamps[key] = ts
