"""cycle-without-limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.cycles import loop_edges

if TYPE_CHECKING:
    from penstock.graph.job import Job


def cycle_limits(job: Job) -> Iterator[Problem]:
    """A loop must have a limit, or a record that never converges would never leave it."""
    if job.max_iterations is not None:
        return
    reported: set[int] = set()
    for edge in loop_edges(job):
        entry = job.vertices[edge.entry]
        if entry.max_iterations is None and edge.entry not in reported:
            reported.add(edge.entry)
            way = " -> ".join((*edge.cycle, edge.cycle[0]))
            reason = f"the cycle {way} has no limit: set max_iterations on the job or on {entry.label!r}"
            yield Problem("cycle-without-limit", reason, entry.label)
