"""Classification of edges: in memory, through the shuffle, or to Spark as columns.

Also finds the sides of the shuffle on which each vertex runs, and the regions that memory edges connect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.graph.edge import Distribution, Edge, distributions_of
from penstock.graph.graph_algorithms import arcs_of, reachable
from penstock.graph.job import Job
from penstock.graph.tasks import NativeTask


class Channel(Enum):
    """The way in which records get from one vertex to the next."""

    MEMORY = "memory"
    """As Python objects within one process."""
    EXCHANGE = "exchange"
    """Through the shuffle, by key or to instances."""
    NATIVE = "native"
    """As typed columns, into a vertex that Spark runs."""


WINDOW_PORT = "@window"
"""The internal port through which a source with a window sends records to its own windows."""


@dataclass(frozen=True)
class Exchange:
    """An edge that goes through the shuffle, or the connection of a source to its own windows."""

    source: int
    source_port: str
    target: int
    target_port: str
    feedback: bool
    """True if the sender can run after the shuffle: its records then go into the next micro-batch."""


@dataclass(frozen=True)
class Sides:
    """The vertices that can run before the shuffle, and those that can run after it."""

    direct: tuple[int, ...]
    keyed: tuple[int, ...]


def channels_of(job: Job) -> list[tuple[Edge, Channel]]:
    """Return all edges in the order of adding, each with its channel."""
    return [(edge, _channel(job, edge, distribution)) for edge, distribution in distributions_of(job)]


def edges_by(job: Job, channel: Channel) -> list[Edge]:
    """Return the edges of one channel, in the order of adding."""
    return [edge for edge, its in channels_of(job) if its is channel]


def _channel(job: Job, edge: Edge, distribution: Distribution) -> Channel:
    if isinstance(job.vertices[edge.target].operator, NativeTask):
        return Channel.NATIVE
    return Channel.MEMORY if distribution is Distribution.CHAINED else Channel.EXCHANGE


def memory_arcs(job: Job) -> list[list[int]]:
    """Return the arcs of the edges whose records stay in memory."""
    return arcs_of(
        len(job.vertices),
        ((edge.source, edge.target) for edge in edges_by(job, Channel.MEMORY)),
    )


def find_sides(job: Job) -> Sides:
    """Return the vertices that can run before the shuffle and those that can run after it."""
    arcs = memory_arcs(job)
    windowed = [vertex.index for vertex in job.vertices if vertex.windowed_source]
    # Results of Spark's vertices continue before the shuffle, like records of sources.
    sources = [
        vertex.index
        for vertex in job.vertices
        if (vertex.kind == "source" and not vertex.window) or isinstance(vertex.operator, NativeTask)
    ]
    targets = [edge.target for edge in edges_by(job, Channel.EXCHANGE)] + windowed
    return Sides(tuple(reachable(arcs, sources)), tuple(reachable(arcs, targets)))


def find_exchanges(job: Job, sides: Sides) -> tuple[Exchange, ...]:
    """Return the exchanges of sources with windows, then those of keyed edges in the order of adding."""
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
    """The origins of its records, such as ``source lines`` or ``exchange split->count``."""


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
