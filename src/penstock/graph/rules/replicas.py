"""bad-k of a job with replicas: what they could not agree on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Problem
from penstock.graph.ends import Source

if TYPE_CHECKING:
    from penstock.graph.job import Job


_UNSAID = "another process that asks for the same positions gets other records"


def replicas(job: Job) -> Iterator[Problem]:
    """Replicas run the same batches, so that all of them must be able to read the same records."""
    if not (job.k or job.standby):
        return
    for vertex in job.vertices:
        source = vertex.operator
        if isinstance(source, Source) and not source.replicable:
            why = source.not_replicable or _UNSAID
            reason = f"{type(source).__name__} cannot be read by several replicas: {why}"
            message = f"source {vertex.label!r}: {reason}; or run the job with k=0"
            yield Problem("bad-k", message, vertex.label)
