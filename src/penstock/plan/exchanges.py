"""Classifies edges: in memory, through the shuffle, or to Spark as columns.

Also the sides of the shuffle on which a vertex runs, and the regions that memory edges connect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.graph.edge import Distribution, Edge, distributions_of
from penstock.graph.graph_algorithms import arcs_of, reachable
from penstock.graph.job import Job
from penstock.graph.tasks import NativeTask


class Channel(Enum):
    """How a record gets from a vertex to the next."""

    MEMORY = "memory"
    """As a Python object, in the same process."""
    EXCHANGE = "exchange"
    """Through the shuffle, by key or to an instance."""
    NATIVE = "native"
    """As typed columns, into a vertex that Spark runs itself."""


WINDOW_PORT = "@window"
"""The port through which a source with a window sends its records to where windows are gathered."""


@dataclass(frozen=True)
class Exchange:
    """An edge into a task that goes through the shuffle, or the way from a source to its own windows."""

    source: int
    source_port: str
    target: int
    target_port: str
    feedback: bool
    """True when the sender can run after the shuffle: what it sends goes into the next micro-batch."""


@dataclass(frozen=True)
class Sides:
    """The vertices that can run before the shuffle, and those that can run after it."""

    direct: tuple[int, ...]
    keyed: tuple[int, ...]


def channels_of(job: Job) -> list[tuple[Edge, Channel]]:
    """Return all edges in their order, each with its channel."""
    return [(edge, _channel(job, edge, distribution)) for edge, distribution in distributions_of(job)]


def edges_by(job: Job, channel: Channel) -> list[Edge]:
    """Return the edges that have a channel, in their order."""
    return [edge for edge, its in channels_of(job) if its is channel]


def _channel(job: Job, edge: Edge, distribution: Distribution) -> Channel:
    if isinstance(job.vertices[edge.target].operator, NativeTask):
        return Channel.NATIVE
    return Channel.MEMORY if distribution is Distribution.CHAINED else Channel.EXCHANGE


def memory_arcs(job: Job) -> list[list[int]]:
    """Return the arcs that stay in memory."""
    return arcs_of(
        len(job.vertices),
        ((edge.source, edge.target) for edge in edges_by(job, Channel.MEMORY)),
    )


def find_sides(job: Job) -> Sides:
    """Say which vertices can run before the shuffle and which after it."""
    arcs = memory_arcs(job)
    windowed = [vertex.index for vertex in job.vertices if vertex.windowed_source]
    # What Spark's own vertices give goes on before the shuffle, as what sources give does.
    sources = [
        vertex.index
        for vertex in job.vertices
        if (vertex.kind == "source" and not vertex.window) or isinstance(vertex.operator, NativeTask)
    ]
    targets = [edge.target for edge in edges_by(job, Channel.EXCHANGE)] + windowed
    return Sides(tuple(reachable(arcs, sources)), tuple(reachable(arcs, targets)))


def find_exchanges(job: Job, sides: Sides) -> tuple[Exchange, ...]:
    """Return the sources that gather windows behind the shuffle, then the keyed edges in edge order."""
    after = set(sides.keyed)
    windowed = [
        Exchange(vertex.index, WINDOW_PORT, vertex.index, WINDOW_PORT, False)
        for vertex in job.vertices
        if vertex.windowed_source
    ]
    return (
        *windowed,
        *(
            Exchange(edge.source, edge.source_port, edge.target, edge.target_port, edge.source in after)
            for edge in edges_by(job, Channel.EXCHANGE)
        ),
    )


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
