"""Planning of the vertices that Spark runs itself: their order, and their exchange of records with Python.

Python passes records to such a vertex as typed columns, one struct column for each input port: a *slot*. The
results continue in Python, before the shuffle, unless their target also runs in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.graph_algorithms import arcs_of, reachable
from penstock.graph.job import Job
from penstock.graph.tasks import NativeTask
from penstock.graph.vertex import columns_of, schema_of
from penstock.plan.exchanges import Channel, Sides, channels_of, memory_arcs
from penstock.schema.record_schema import Schema


@dataclass(frozen=True)
class Slot:
    """An input port of a vertex in Spark that receives records from Python."""

    vertex: int
    port: str
    schema: Schema
    key: str
    """The type of the keys."""


@dataclass(frozen=True)
class NativePlan:
    """The vertices of a job that run in Spark, and their exchange of records with Python."""

    order: tuple[int, ...] = ()
    """The vertices, each after those that it depends on within a batch."""
    slots: tuple[Slot, ...] = ()
    feeds: tuple[tuple[int, ...], ...] = ()
    """For each vertex in ``order``, the slots that Python may fill with records derived from its result."""
    source_feeds: tuple[int, ...] = ()
    """The slots that Python may fill with records of sources and of the previous batch."""
    sources: tuple[str, ...] = ()
    """The names of sources all of whose records go to such vertices."""
    feedback: bool = False
    """Whether vertices after the shuffle send records to such a vertex, which get into the next batch."""

    def slot_of(self, vertex: int, port: str) -> int:
        """Return the index of a slot."""
        return next(
            number for number, slot in enumerate(self.slots) if (slot.vertex, slot.port) == (vertex, port)
        )


def find_native(job: Job, sides: Sides) -> NativePlan:
    """Plan the vertices of a job that Spark runs itself."""
    natives = [vertex.index for vertex in job.vertices if isinstance(vertex.operator, NativeTask)]
    if not natives:
        return NativePlan()
    memory = memory_arcs(job)
    within = arcs_of(
        len(job.vertices),
        ((edge.source, edge.target) for edge, channel in channels_of(job) if channel is not Channel.EXCHANGE),
    )
    behind = {native: set(reachable(within, [native])) for native in natives}
    order = sorted(natives, key=lambda native: (sum(native in found for found in behind.values()), native))
    slots: list[Slot] = []
    senders: list[set[int]] = []
    for edge in job.edges:
        if edge.target not in natives or edge.source in natives:
            continue
        place = (edge.target, edge.target_port)
        known = [(slot.vertex, slot.port) for slot in slots]
        if place not in known:
            target = job.vertices[edge.target]
            schema = schema_of(target, "input_schema") or columns_of(job.vertices[edge.source])
            assert schema is not None, "validation rejects columns without a declared schema"
            slots.append(Slot(*place, schema, target.operator.key))
            senders.append(set())
            known.append(place)
        senders[known.index(place)].add(edge.source)
    keyed = set(sides.keyed)
    sources = [vertex.index for vertex in job.vertices if vertex.kind == "source"]
    early = keyed | set(reachable(memory, sources))
    return NativePlan(
        order=tuple(order),
        slots=tuple(slots),
        feeds=tuple(_fed(senders, set(reachable(memory, [native]))) for native in order),
        source_feeds=_fed(senders, early),
        sources=tuple(
            job.vertices[source].name
            for source in sources
            if all(edge.target in natives for edge in job.edges if edge.source == source)
        ),
        feedback=any(found & keyed for found in senders),
    )


def _fed(senders: list[set[int]], vertices: set[int]) -> tuple[int, ...]:
    return tuple(number for number, found in enumerate(senders) if found & vertices)
