"""Which node a worker goes to: of those that can take it the one with the most free cores, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cluster.documents import Assignment, ExecutorSlot, JobSpec, NodeInfo


@dataclass(frozen=True)
class Demand:
    """What one process of a job needs of its node."""

    cores: int
    memory: int


@dataclass
class Room:
    """What is free on each node. Placing takes it."""

    nodes: Mapping[str, NodeInfo]
    cores: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[str, NodeInfo], assignments: Iterable[Assignment]) -> Room:
        """Return what is left when all that is assigned has what it asked for."""
        room = cls(
            nodes,
            {name: node.cores for name, node in nodes.items()},
            {name: node.memory for name, node in nodes.items()},
        )
        for assignment in assignments:
            for node, demand in demands(assignment):
                room.take(node, demand)
        return room

    def take(self, node: str, demand: Demand) -> None:
        """Note that something runs on a node; one that is gone is left out."""
        if node in self.cores:
            self.cores[node] -= demand.cores
            self.memory[node] -= demand.memory

    def give(self, node: str, demand: Demand) -> None:
        """Note that something will run there no more."""
        self.take(node, Demand(-demand.cores, -demand.memory))


def demands(assignment: Assignment) -> list[tuple[str, Demand]]:
    """Return what an assignment takes, and where."""
    driver = (assignment.node, Demand(assignment.cores, assignment.memory))
    return [driver, *((slot.node, slot_demand(slot)) for slot in assignment.executors)]


def slot_demand(slot: ExecutorSlot) -> Demand:
    """Return what an executor takes."""
    return Demand(slot.cores, slot.memory)


@dataclass(frozen=True)
class Choice:
    """A node, or none; and why not the others."""

    node: str | None
    rejected: Mapping[str, str]

    def told(self) -> str:
        """Say in words why no node was chosen."""
        if not self.rejected:
            return "the cluster has no nodes"
        return "; ".join(f"{node}: {reason}" for node, reason in sorted(self.rejected.items()))


def choose(
    spec: JobSpec, demand: Demand, room: Room, *, prefer: str = "", avoid: Mapping[str, int] | None = None
) -> Choice:
    """Choose a node for one process of a job.

    ``prefer`` is taken if it can take it; of the others, the one that has the fewest in ``avoid``, then the
    most free cores, then the most free memory, then the first by name.
    """
    rejected: dict[str, str] = {}
    for name, node in sorted(room.nodes.items()):
        reason = _obstacle(spec, demand, node, room)
        if reason:
            rejected[name] = reason
    able = [name for name in sorted(room.nodes) if name not in rejected]
    if not able:
        return Choice(None, rejected)
    if prefer in able:
        return Choice(prefer, rejected)
    there = avoid or {}
    best = min(able, key=lambda name: (there.get(name, 0), -room.cores[name], -room.memory[name], name))
    return Choice(best, rejected)


def _obstacle(spec: JobSpec, demand: Demand, node: NodeInfo, room: Room) -> str | None:
    if spec.nodes and node.name not in spec.nodes:
        return f"the job is for {', '.join(spec.nodes)} only"
    for label, value in sorted(spec.labels.items()):
        if node.labels.get(label) != value:
            return f"it lacks the label {label}={value}"
    if room.cores[node.name] < demand.cores:
        return f"{demand.cores} cores asked for, {max(room.cores[node.name], 0)} of {node.cores} free"
    if room.memory[node.name] < demand.memory:
        free = max(room.memory[node.name], 0) >> 20
        return f"{demand.memory >> 20} MiB asked for, {free} of {node.memory >> 20} MiB free"
    return None
