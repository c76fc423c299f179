"""One way that records take: from an output port of a vertex to an input port of a vertex."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.partitioning import Partitioning


@dataclass(frozen=True)
class Edge:
    """An edge of a job. Vertices are named by their index, because names may still be wrong.

    >>> Edge(0, "out", 1, "in", Partitioning.ROUND_ROBIN).target
    1
    """

    source: int
    source_port: str
    target: int
    target_port: str
    by: Partitioning
