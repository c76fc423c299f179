"""What has come to a bucket: parcels of all tasks are put together again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.exchange import (
    DEALT,
    Address,
    ErrorHandlers,
    keep_latest_times,
    merge_function,
    merge_one,
)
from penstock.engine.packing import unpack
from penstock.engine.windowing import Cell
from penstock.record import Record
from penstock.running_code import vertex_call


class Inbox:
    """Puts together what all tasks have sent to one bucket."""

    def __init__(self, blueprint: Blueprint, error_handler: ErrorHandlers) -> None:
        self._index = {vertex.name: index for index, vertex in enumerate(blueprint.vertices)}
        self._vertices = blueprint.vertices
        self._recovers = error_handler
        self.partials: dict[tuple[Address, Cell | None], dict[Any, Any]] = {}
        self.groups: dict[Address, tuple[dict[Any, list[Any]], dict[Any, float]]] = {}
        self.records: dict[Address, list[tuple[str, Cell | None, list[Record]]]] = {}
        """By address, the records of each lane in the order of the lane."""
        self.dealt: dict[Address, dict[int, list[tuple[str, list[Record]]]]] = {}
        """By address and instance, the same."""

    def addresses(self) -> list[Address]:
        """Return whom something has come for, in an order that depends on nothing but the graph."""
        return sorted({*(address for address, _ in self.partials), *self.groups, *self.records, *self.dealt})

    def take(self, parcel: bytes | memoryview) -> None:
        """Open a parcel."""
        form, name, port, counters, cell, lane, *columns = unpack(parcel)
        address = (self._index[name], port, tuple(counters))
        if form == "partials":
            self._take_partials((address, cell), *columns)
        elif form == "groups":
            self._take_groups(address, *columns)
        elif form == DEALT:
            records = list(map(Record._make, zip(*columns, strict=True)))
            self.dealt.setdefault(address, {}).setdefault(cell, []).append((lane, records))
        else:
            records = list(map(Record._make, zip(*columns, strict=True)))
            self.records.setdefault(address, []).append((lane, cell, records))

    def in_order(self, address: Address) -> list[tuple[str, Cell | None, list[Record]]]:
        """Return what has come for an address, lane after lane: who was faster must not matter."""
        return sorted(self.records.get(address, ()), key=lambda part: part[0])

    def by_instance(self, address: Address) -> Iterator[tuple[int, list[Record]]]:
        """Return what has come for the instances of an address, each with its number."""
        for instance, parts in sorted(self.dealt.get(address, {}).items()):
            ordered = sorted(parts, key=lambda part: part[0])
            yield instance, [record for _, records in ordered for record in records]

    def _take_partials(
        self, address: tuple[Address, Cell | None], keys: list[Any], values: list[Any]
    ) -> None:
        known = self.partials.get(address)
        if known is None:
            self.partials[address] = dict(zip(keys, values, strict=True))
            return
        (vertex, _, counters), _ = address
        merge = merge_function(self._vertices[vertex])
        rest = zip(keys, values, strict=True)
        while True:
            key = value = None
            try:
                with vertex_call(self._vertices[vertex].name):
                    for key, value in rest:
                        known[key] = merge(known[key], value) if key in known else value
            except BaseException as error:
                again = lambda key=key, value=value: merge_one(merge, known, key, value)  # noqa: E731
                self._recovers(vertex, counters)(Record(key, value), error, again)
            else:
                return

    def _take_groups(
        self, address: Address, keys: list[Any], sizes: list[int], flat: list[Any], times: list[Any] | None
    ) -> None:
        groups, stamps = self.groups.setdefault(address, ({}, {}))
        values = iter(flat)
        for key, size in zip(keys, sizes, strict=True):
            its_values = list(islice(values, size))
            if key in groups:
                groups[key].extend(its_values)
            else:
                groups[key] = its_values
        if times is not None:
            keep_latest_times(stamps, [Record(key, None, ts) for key, ts in zip(keys, times, strict=True)])
