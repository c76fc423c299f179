"""bad-name, duplicate-name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.names import name_fault

if TYPE_CHECKING:
    from penstock.graph.job import Job


def names(job: Job) -> Iterator[Problem]:
    """Names must serve as names of folders and ZooKeeper nodes, and tell vertices apart."""
    reason = name_fault(job.name)
    if reason is not None:
        yield Problem("bad-name", f"job name {reason}")
    for vertex in job.vertices:
        reason = name_fault(vertex.name)
        if reason is not None:
            yield Problem("bad-name", f"vertex name {reason}", vertex.label)
    counts = Counter(vertex.label for vertex in job.vertices if isinstance(vertex.name, str))
    for name, count in counts.items():
        if count > 1:
            yield Problem("duplicate-name", f"{count} vertices are named {name!r}: rename all but one", name)
