"""Passes records from Python to vertices that Spark runs itself, and takes their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.plan.physical_plan import Channel, Hop
from penstock.record import Record
from penstock.schema.ddl_parser import read_type

SUFFIX = ".native"
"""Ends the name of a feedback file that holds records for such vertices instead of parcels."""

Misfits = Callable[[int, "list[tuple[Record, str]]"], None]
"""Takes what does not fit the schema of a vertex."""


class NativeOutbox:
    """Gathers what one task sends to vertices of Spark's own."""

    def __init__(self, blueprint: Blueprint, misfits: Misfits) -> None:
        self._plan = blueprint.plan.native
        self._names = [vertex.name for vertex in blueprint.vertices]
        self._keys = [read_type(slot.key) for slot in self._plan.slots]
        self._misfits = misfits
        self._waiting: list[tuple[int, Columns]] = []

    def add(self, vertex: int, port: str, given: list[Record] | Columns) -> None:
        """Take records for a port."""
        number = self._plan.slot_of(vertex, port)
        schema = self._plan.slots[number].schema
        typed, rejected = given.typed(schema) if isinstance(given, Columns) else Columns.of(given, schema)
        if rejected:
            self._misfits(vertex, rejected)
        if typed:
            self._waiting.append((number, typed))

    def drain(self) -> Iterator[tuple[int, Any]]:
        """Yield what has been gathered, by slot and as Arrow arrays of structs, and be empty again."""
        waiting, self._waiting = self._waiting, []
        for number, columns in waiting:
            structs, rejected = columns.as_struct(self._keys[number])
            if rejected:
                self._misfits(self._plan.slots[number].vertex, rejected)
            if len(structs):
                yield number, structs

    def keep(self) -> list[tuple[str, str, list[Record]]]:
        """Return what has been gathered as records by vertex and port, and be empty again."""
        waiting, self._waiting = self._waiting, []
        slots = self._plan.slots
        return [
            (self._names[slots[number].vertex], slots[number].port, columns.records())
            for number, columns in waiting
        ]

    def take(self, kept: Iterable[tuple[str, str, list[Record]]]) -> None:
        """Take what :meth:`keep` gave in the batch before."""
        for name, port, records in kept:
            self.add(self._names.index(name), port, list(map(Record._make, records)))


def runs_in_spark(blueprint: Blueprint, hop: Hop) -> bool:
    """Whether what Spark's own vertex sends over an edge need not go through Python."""
    return hop.channel is Channel.NATIVE or writes_in_spark(blueprint, hop.target)


def writes_in_spark(blueprint: Blueprint, vertex: int) -> bool:
    """Whether a vertex is a sink whose files Spark itself can write."""
    spec = blueprint.vertices[vertex]
    return spec.kind == "sink" and hasattr(spec.operator, "native_target")
