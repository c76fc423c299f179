"""The outbox of a task for records to vertices that Spark runs itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.plan.physical_plan import Channel, Hop
from penstock.record import Record
from penstock.schema.ddl_parser import read_type

SUFFIX = ".native"
"""The suffix of feedback files that hold records for such vertices instead of parcels."""

Misfits = Callable[[int, "list[tuple[Record, str]]"], None]
"""Handles records that do not fit the schema of a vertex."""


class NativeOutbox:
    """Collects the records that one task sends to vertices in Spark."""

    def __init__(self, blueprint: Blueprint, misfits: Misfits) -> None:
        self._plan = blueprint.plan.native
        self._names = [vertex.name for vertex in blueprint.vertices]
        self._keys = [read_type(slot.key) for slot in self._plan.slots]
        self._misfits = misfits
        self._waiting: list[tuple[int, Columns]] = []

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to send."""
        return not self._waiting

    def add(self, vertex: int, port: str, given: list[Record] | Columns) -> None:
        """Add records for a port."""
        number = self._plan.slot_of(vertex, port)
        schema = self._plan.slots[number].schema
        typed, rejected = given.cast(schema) if isinstance(given, Columns) else Columns.of(given, schema)
        if rejected:
            self._misfits(vertex, rejected)
        if typed:
            self._waiting.append((number, typed))

    def drain(self) -> Iterator[tuple[int, Any]]:
        """Yield the collected records by slot, as Arrow arrays of structs, and remove them."""
        waiting, self._waiting = self._waiting, []
        for number, columns in waiting:
            structs, rejected = columns.as_struct(self._keys[number])
            if rejected:
                self._misfits(self._plan.slots[number].vertex, rejected)
            if len(structs):
                yield number, structs

    def keep(self) -> list[tuple[str, str, list[Record]]]:
        """Return the collected records by vertex and port, and remove them."""
        waiting, self._waiting = self._waiting, []
        slots = self._plan.slots
        return [
            (self._names[slots[number].vertex], slots[number].port, columns.records())
            for number, columns in waiting
        ]

    def take(self, kept: Iterable[tuple[str, str, list[Record]]]) -> None:
        """Add the records that :meth:`keep` returned in the previous batch."""
        for name, port, records in kept:
            self.add(self._names.index(name), port, list(map(Record._make, records)))


def runs_in_spark(blueprint: Blueprint, hop: Hop) -> bool:
    """Return whether records that a vertex in Spark sends over an edge need not go through Python."""
    return hop.channel is Channel.NATIVE or writes_in_spark(blueprint, hop.target)


def writes_in_spark(blueprint: Blueprint, vertex: int) -> bool:
    """Return whether a vertex is a sink whose files Spark itself can write."""
    spec = blueprint.vertices[vertex]
    return spec.kind == "sink" and hasattr(spec.operator, "native_target")
