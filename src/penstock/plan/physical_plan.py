"""The physical plan: hops, loops with their counters, and other picklable data computed once for a job."""

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
    """The maximum number of times that a record may return to the entry."""
    members: tuple[str, ...]
    """The names of all vertices on these cycles, entry first."""


@dataclass(frozen=True)
class LoopClosure:
    """The effect of an edge that closes a loop: count one more round, and discard records past the limit."""

    slot: int
    limit: int
    entry: str
    cycle: tuple[str, ...]
    """A shortest cycle that the edge closes, entry first; reported with each discarded record."""


def find_loops(job: Job) -> tuple[tuple[Loop, ...], dict[tuple[int, int], LoopClosure]]:
    """Return the loops by slot, and the closures of loops by (source, target) of their edges."""
    arcs = job_arcs(job)
    loops: dict[int, Loop] = {}
    closings: dict[tuple[int, int], LoopClosure] = {}
    for edge in loop_edges(job):
        entry = job.vertices[edge.entry]
        if edge.entry not in loops:
            own = entry.max_iterations
            limit = own if own is not None else job.max_iterations
            assert limit is not None, "validation rejects a loop without a limit"
            members = tuple(job.vertices[member].name for member in loop_members(arcs, edge.entry))
            loops[edge.entry] = Loop(len(loops), edge.entry, limit, members)
        loop = loops[edge.entry]
        closings[edge.tail, edge.entry] = LoopClosure(loop.slot, loop.limit, entry.name, edge.cycle)
    return tuple(loops.values()), closings


def find_live(
    job: Job, loops: tuple[Loop, ...], closings: Mapping[tuple[int, int], LoopClosure]
) -> tuple[tuple[bool, ...], ...]:
    """Return for each vertex and loop whether a record there can reach an edge that closes the loop.

    If it cannot, the counter need not travel with the record.
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
    """One edge in the form that the engine follows."""

    target: int
    port: str
    channel: Channel
    closing: LoopClosure | None
    distribution: Distribution = Distribution.CHAINED


@dataclass(frozen=True)
class PhysicalPlan:
    """The plan of a job as picklable data. Vertices are identified by index."""

    job: str
    regions: tuple[Region, ...]
    loops: tuple[Loop, ...]
    exchanges: tuple[Exchange, ...]
    hops: Mapping[tuple[int, str], tuple[Hop, ...]]
    """Hops by vertex and output port, in the order in which edges were added."""
    live: tuple[tuple[bool, ...], ...]
    """``live[vertex][slot]``: whether a record at this vertex can reach an edge that closes that loop."""
    direct: tuple[int, ...]
    """Vertices that can run before the exchange."""
    keyed: tuple[int, ...]
    """Vertices that can run after the exchange."""
    timed: tuple[TimedVertex, ...] = ()
    """Vertices that need a watermark, each after those that its watermark depends on."""
    multipath_sources: tuple[int, ...] = ()
    """Sources from which a record can reach the same windows along more than one path."""
    native: NativePlan = field(default_factory=NativePlan)
    """The vertices that Spark runs itself."""
    instances: Mapping[int, int] = field(default_factory=dict)
    """The number of instances of each vertex that has its own; 0 means one for each bucket."""

    @property
    def needs_exchange(self) -> bool:
        """Whether the job has a keyed edge, so that Spark has to shuffle."""
        return bool(self.exchanges)


def compile_plan(job: Job) -> PhysicalPlan:
    """Validate a job and return its physical plan."""
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
