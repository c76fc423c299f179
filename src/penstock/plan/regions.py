"""Regions: the parts of a job that hand each other Python objects."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.edge import Edge
from penstock.graph.job import Job
from penstock.graph.traversal import arcs_of, reachable
from penstock.plan.exchanges import Channel, Exchange, edges_by


@dataclass(frozen=True)
class Region:
    """A maximal sub-graph without a keyed exchange."""

    index: int
    vertices: tuple[int, ...]
    entered_by: tuple[str, ...]
    """Where its records come from, such as ``source lines`` or ``exchange split->count``."""


def find_regions(job: Job, exchanges: tuple[Exchange, ...]) -> tuple[Region, ...]:
    """Return the regions in the order of their earliest vertices."""
    both_ways = arcs_of(
        len(job.vertices),
        (
            pair
            for edge in edges_by(job, Channel.MEMORY)
            for pair in ((edge.source, edge.target), (edge.target, edge.source))
        ),
    )
    columns = edges_by(job, Channel.NATIVE)
    regions: list[Region] = []
    placed: set[int] = set()
    for vertex in range(len(job.vertices)):
        if vertex not in placed:
            members = reachable(both_ways, [vertex])
            placed.update(members)
            regions.append(Region(len(regions), tuple(members), _entries(job, members, exchanges, columns)))
    return tuple(regions)


def _entries(
    job: Job, members: list[int], exchanges: tuple[Exchange, ...], columns: list[Edge]
) -> tuple[str, ...]:
    names = [vertex.name for vertex in job.vertices]
    entries = [f"source {names[member]}" for member in members if job.vertices[member].kind == "source"]
    entries += [
        f"exchange {names[exchange.source]}->{names[exchange.target]}"
        for exchange in exchanges
        if exchange.target in members
    ]
    entries += [f"columns from {names[edge.source]}" for edge in columns if edge.target in members]
    return tuple(dict.fromkeys(entries))
