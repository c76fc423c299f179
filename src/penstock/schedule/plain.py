"""Snapshots as JSON, for a user's strategy in its own process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import inf
from typing import cast

from penstock.cluster.codec import DocumentError, of_plain
from penstock.schedule.model import ClusterSnapshot

_TOLD = 5
"""How many faults are named."""


def write_question(strategy: str, snapshot: ClusterSnapshot, demands: tuple[str, ...]) -> bytes:
    """Write what the process of a user's strategy reads."""
    question = {"strategy": strategy, "snapshot": asdict(snapshot), "demands": list(demands)}
    return json.dumps(question, separators=(",", ":")).encode()


def read_snapshot(given: object) -> ClusterSnapshot:
    """Read a snapshot from what JSON has of it; raises DocumentError for what no cluster can be.

    >>> read_snapshot({"nodes": [{"name": "n", "cores": 2, "memory": 1024}], "tasks": []}).nodes[0].cores
    2.0
    """
    snapshot = cast(ClusterSnapshot, of_plain(ClusterSnapshot, given))
    faults = [*_twice(snapshot), *_impossible(snapshot)]
    if faults:
        raise DocumentError(f"this cluster cannot be: {'; '.join(faults[:_TOLD])}")
    return snapshot


def repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    """Tell which names are there more than once.

    >>> list(repeated("node", ["a", "b", "a"]))
    ["node 'a' is there 2 times"]
    """
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} is there {count} times"


def _twice(snapshot: ClusterSnapshot) -> Iterator[str]:
    for what, names in (
        ("node", [node.name for node in snapshot.nodes]),
        ("task", [task.id for task in snapshot.tasks]),
        ("uplink of rack", [link.rack for link in snapshot.links]),
    ):
        yield from repeated(what, names)


def _impossible(snapshot: ClusterSnapshot) -> Iterator[str]:
    known = snapshot.task_named
    figures: list[tuple[str, float]] = []
    for node in snapshot.nodes:
        of = f"of node {node.name!r}"
        figures += [(f"cores {of}", node.cores), (f"memory {of}", node.memory)]
        figures += [(f"bandwidth {of}", node.bandwidth), (f"load {of}", node.load)]
    for task in snapshot.tasks:
        figures += [(f"cpu of task {task.id!r}", task.cpu), (f"memory of task {task.id!r}", task.memory)]
    for pair in snapshot.traffic:
        figures.append((f"rate between {pair.first!r} and {pair.second!r}", pair.rate))
        for name in (pair.first, pair.second):
            if name not in known:
                yield f"there is traffic of task {name!r}, which does not exist"
    figures += [(f"bandwidth of the uplink of rack {link.rack!r}", link.bandwidth) for link in snapshot.links]
    for what, figure in figures:
        if not 0 <= figure < inf:
            yield f"the {what} is {figure}"
