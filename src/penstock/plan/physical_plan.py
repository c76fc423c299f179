"""The physical plan: hops, loops with their counters, and other data computed once for a job.

Plain data that can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.graph.edge import Distribution, distributions_of, instances_of
from penstock.graph.graph_algorithms import job_arcs, loop_edges, loop_members, reachable, reversed_arcs
from penstock.graph.job import Job
from penstock.plan.exchanges import (
    Channel,
    Exchange,
    Region,
    channels_of,
    find_exchanges,
    find_regions,
    find_sides,
)
from penstock.plan.native_vertices import NativePlan, find_native
from penstock.plan.watermark_inputs import TimedVertex, find_multipath_sources, find_timed


@dataclass(frozen=True)
class Loop:
    """All cycles with the same entry. They share one counter."""

    slot: int
    """The index of the counter among a record's counters."""
    entry: int
    """The earliest-added vertex of the cycles."""
    limit: int
    """How often a record may come back into the entry."""
    members: tuple[str, ...]
    """The names of all vertices on these cycles, entry first."""


@dataclass(frozen=True)
class LoopClosure:
    """What an edge that closes a loop does: count one more round, and discard past the limit."""

    slot: int
    limit: int
    entry: str
    cycle: tuple[str, ...]
    """A shortest cycle that the edge closes, entry first: what a discarded record is reported with."""


def find_loops(job: Job) -> tuple[tuple[Loop, ...], dict[tuple[int, int], LoopClosure]]:
    """Return the loops by slot, and what closes them by (source, target) of the edge."""
    arcs = job_arcs(job)
    loops: dict[int, Loop] = {}
    closings: dict[tuple[int, int], LoopClosure] = {}
    for edge in loop_edges(job):
        entry = job.vertices[edge.entry]
        if edge.entry not in loops:
            own = entry.max_iterations
            limit = own if own is not None else job.max_iterations
            assert limit is not None, "validation refuses a loop without a limit"
            members = tuple(job.vertices[member].name for member in loop_members(arcs, edge.entry))
            loops[edge.entry] = Loop(len(loops), edge.entry, limit, members)
        loop = loops[edge.entry]
        closings[edge.tail, edge.entry] = LoopClosure(loop.slot, loop.limit, entry.name, edge.cycle)
    return tuple(loops.values()), closings


def find_live(
    job: Job, loops: tuple[Loop, ...], closings: Mapping[tuple[int, int], LoopClosure]
) -> tuple[tuple[bool, ...], ...]:
    """Say for each vertex and loop whether a record there can still reach an edge that closes the loop.

    A counter that can matter no more need not travel with the record.
    """
    backward = reversed_arcs(job_arcs(job))
    tails: list[list[int]] = [[] for _ in loops]
    for (tail, _), closing in closings.items():
        tails[closing.slot].append(tail)
    reaching = [set(reachable(backward, ends)) for ends in tails]
    return tuple(tuple(vertex.index in slot for slot in reaching) for vertex in job.vertices)


__all__ = [
    "Channel",
    "Exchange",
    "Hop",
    "Loop",
    "LoopClosure",
    "PhysicalPlan",
    "Region",
    "TimedVertex",
    "compile_plan",
]


@dataclass(frozen=True)
class Hop:
    """One edge, as the engine follows it."""

    target: int
    port: str
    channel: Channel
    closing: LoopClosure | None
    distribution: Distribution = Distribution.CHAINED


@dataclass(frozen=True)
class PhysicalPlan:
    """How a job runs: plain data that can be pickled. Vertices are named by their index."""

    job: str
    regions: tuple[Region, ...]
    loops: tuple[Loop, ...]
    exchanges: tuple[Exchange, ...]
    hops: Mapping[tuple[int, str], tuple[Hop, ...]]
    """By vertex and output port, in edge order."""
    live: tuple[tuple[bool, ...], ...]
    """``live[vertex][slot]``: a record at this vertex can still reach an edge that closes that loop."""
    direct: tuple[int, ...]
    """Vertices that can run before the exchange."""
    keyed: tuple[int, ...]
    """Vertices that can run after the exchange."""
    timed: tuple[TimedVertex, ...] = ()
    """Vertices that need to know how far event time has come, in an order in which it flows."""
    multipath_sources: tuple[int, ...] = ()
    """Sources from which a record can come to the same windows on more than one way."""
    native: NativePlan = field(default_factory=NativePlan)
    """What Spark runs itself."""
    instances: Mapping[int, int] = field(default_factory=dict)
    """How many each vertex has that has instances of its own; 0 for as many as there are buckets."""

    @property
    def needs_exchange(self) -> bool:
        """True when the job has a keyed edge, so that Spark has to shuffle."""
        return bool(self.exchanges)

    @property
    def needs_feedback(self) -> bool:
        """True when a micro-batch can leave records for the next one."""
        return self.native.feedback or any(exchange.feedback for exchange in self.exchanges)


def compile_plan(job: Job) -> PhysicalPlan:
    """Validate a job and work out how it runs."""
    job.validate()
    sides = find_sides(job)
    exchanges = find_exchanges(job, sides)
    loops, closings = find_loops(job)
    timed = find_timed(job, exchanges, closings)
    return PhysicalPlan(
        job=job.name,
        regions=find_regions(job, exchanges),
        loops=loops,
        exchanges=exchanges,
        hops=_hops(job, closings),
        live=find_live(job, loops, closings),
        direct=sides.direct,
        keyed=sides.keyed,
        timed=timed,
        multipath_sources=find_multipath_sources(job, exchanges, timed),
        native=find_native(job, sides),
        instances=instances_of(job),
    )


def _hops(
    job: Job, closings: Mapping[tuple[int, int], LoopClosure]
) -> dict[tuple[int, str], tuple[Hop, ...]]:
    found: dict[tuple[int, str], list[Hop]] = {}
    for (edge, channel), (_, distribution) in zip(channels_of(job), distributions_of(job), strict=True):
        hop = Hop(
            target=edge.target,
            port=edge.target_port,
            channel=channel,
            closing=closings.get((edge.source, edge.target)),
            distribution=distribution,
        )
        found.setdefault((edge.source, edge.source_port), []).append(hop)
    return {start: tuple(hops) for start, hops in found.items()}
