"""Loops of a job: who counts what, and which edges count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.graph.cycles import job_arcs, loop_edges, loop_members
from penstock.graph.job import Job
from penstock.graph.traversal import reachable, reversed_arcs


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
