"""Which drivers to move so that no node is much fuller than it needs to be. Pure; each move says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.documents import JobSpec
from penstock.cluster.placing import Demand, Room, choose
from penstock.cluster.view import Actual


@dataclass(frozen=True)
class Move:
    """A driver that would be better off elsewhere."""

    job: str
    origin: str
    target: str
    reason: str


def rebalance(desired: Mapping[str, JobSpec], actual: Actual) -> list[Move]:
    """Return moves, one a job at the most, after each of which the fuller of two nodes is less full.

    Only jobs that run move, and only to nodes that they may use and that have room for them. How full a node
    is, is the share of its cores that is assigned.
    """
    room = Room.of(actual.nodes, (actual.assignments[name] for name in sorted(actual.assignments)))
    movable = {name for name, spec in desired.items() if _can_move(spec, actual)}
    moves: list[Move] = []
    while (move := _next(desired, actual, room, movable)) is not None:
        moves.append(move)
        movable.discard(move.job)
    return moves


def _can_move(spec: JobSpec, actual: Actual) -> bool:
    assignment = actual.assignments.get(spec.name)
    running = any(
        worker.phase == "running" and assignment is not None and worker.revision == assignment.revision
        for worker in actual.workers.get(spec.name, ())
    )
    return running and spec.wanted == "running"


def _next(desired: Mapping[str, JobSpec], actual: Actual, room: Room, movable: set[str]) -> Move | None:
    """Return the first move that helps, from the fullest node on; ``room`` is as it will be then."""
    for origin in sorted(room.nodes, key=lambda name: (-_full(room, name), name)):
        for job in sorted(movable):
            assignment = actual.assignments[job]
            if assignment.node != origin:
                continue
            demand = Demand(assignment.cores, assignment.memory)
            others = {name: node for name, node in room.nodes.items() if name != origin}
            able = Room(others, room.cores, room.memory)
            target = choose(desired[job], demand, able).node
            if target is None:
                continue
            before, after = _full(room, origin), _full(room, target, more=demand.cores)
            if after < before:
                room.give(origin, demand)
                room.take(target, demand)
                reason = f"{origin} is {before:.0%} full, {target} will be {after:.0%}"
                return Move(job, origin, target, reason)
    return None


def _full(room: Room, node: str, more: int = 0) -> float:
    cores = room.nodes[node].cores
    return (cores - room.cores[node] + more) / cores
