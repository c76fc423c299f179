"""Keyed edges: what leaves a task towards a bucket, and how it is put together again there.

Spark shuffles parcels, not records: a parcel holds, as columns, all that one task has for one bucket of
one vertex. Values are grouped by key, or merged where the state allows it, before they are sent, and a
column that a vertex does not use is not sent at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from penstock.engine.blueprint import Blueprint
from penstock.engine.failure import VertexFailureError
from penstock.engine.packing import pack, unpack
from penstock.graph.tasks import CombiningTask, Count, StatefulTask
from penstock.keys import key_hash
from penstock.record import Record

Counters = tuple[int, ...]
Address = tuple[int, str, Counters]
"""Vertex, port and loop counters. Records with different counters are never mixed, so that what is made
of them has counters as exact as their own."""

FLUSH_AT = 200_000
"""How many records or keys an outbox holds before it sends them: bounds the memory of a task."""


class Outbox:
    """Gathers what one task sends over keyed edges."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._vertices = blueprint.vertices
        self._buckets = blueprint.buckets
        self._partials: dict[Address, dict[Any, Any]] = {}
        self._groups: dict[Address, tuple[dict[Any, list[Any]], dict[Any, float]]] = {}
        self._plain: dict[Address, list[Record]] = {}
        self._waiting = 0

    @property
    def full(self) -> bool:
        """Whether it is time to send."""
        return self._waiting >= FLUSH_AT

    def add(self, address: Address, records: list[Record]) -> None:
        """Take records for a vertex behind a keyed edge."""
        operator = self._vertices[address[0]].operator
        record: Record | None = None
        try:
            if isinstance(operator, CombiningTask):
                partials = self._partials.setdefault(address, {})
                before = len(partials)
                if type(operator) is Count:
                    seen = partials.get
                    for record in records:
                        key = record[0]
                        partials[key] = seen(key, 0) + 1
                else:
                    lift, merge = operator.lift, operator.merge
                    for record in records:
                        key = record[0]
                        value = lift(record[1])
                        partials[key] = merge(partials[key], value) if key in partials else value
                self._waiting += len(partials) - before
                return
            self._waiting += len(records)
            if not isinstance(operator, StatefulTask):
                self._plain.setdefault(address, []).extend(records)
                for record in records:
                    hash(record[0])
                return
            groups, stamps = self._groups.setdefault(address, ({}, {}))
            find = groups.get
            for record in records:
                key = record[0]
                values = find(key)
                if values is None:
                    groups[key] = [record[1]]
                else:
                    values.append(record[1])
            record = None
            _latest(stamps, records)
        except BaseException as error:
            raise VertexFailureError(address[0], record, error) from error

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield parcels with their buckets, and be empty again."""
        for address, partials in self._partials.items():
            for bucket, keys in self._split(address[0], list(partials)):
                yield bucket, self._seal("partials", address, keys, [partials[key] for key in keys])
        for address, (groups, stamps) in self._groups.items():
            for bucket, keys in self._split(address[0], list(groups)):
                lists = [groups[key] for key in keys]
                sizes = [len(values) for values in lists]
                times = [stamps.get(key) for key in keys] if stamps else None
                flat = list(chain.from_iterable(lists))
                yield bucket, self._seal("groups", address, keys, sizes, flat, times)
        for address, records in self._plain.items():
            for bucket, chosen in self._split_records(address[0], records):
                keys, values, times = (list(column) for column in zip(*chosen, strict=True))
                yield bucket, self._seal("records", address, keys, values, times)
        self._partials.clear()
        self._groups.clear()
        self._plain.clear()
        self._waiting = 0

    def _seal(self, form: str, address: Address, *columns: Any) -> bytes:
        vertex, port, counters = address
        try:
            return pack((form, self._vertices[vertex].name, port, counters, *columns))
        except BaseException as error:
            raise VertexFailureError(vertex, None, error) from error

    def _split(self, vertex: int, keys: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        chosen: list[list[Any]] = [[] for _ in range(self._buckets)]
        key = None
        try:
            for key in keys:
                chosen[key_hash(key) % self._buckets].append(key)
        except TypeError as error:
            raise VertexFailureError(vertex, Record(key), error) from error
        for bucket, its_keys in enumerate(chosen):
            if its_keys:
                yield bucket, its_keys

    def _split_records(self, vertex: int, records: list[Record]) -> Iterator[tuple[int, list[Record]]]:
        chosen: dict[int, list[Record]] = {}
        record: Record | None = None
        try:
            for record in records:
                chosen.setdefault(key_hash(record[0]) % self._buckets, []).append(record)
        except TypeError as error:
            raise VertexFailureError(vertex, record, error) from error
        yield from sorted(chosen.items())


def _latest(stamps: dict[Any, float], records: list[Record]) -> None:
    for key, _, ts in records:
        if ts is not None and ts > stamps.get(key, float("-inf")):
            stamps[key] = ts


class Inbox:
    """Puts together what all tasks have sent to one bucket."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._index = {vertex.name: index for index, vertex in enumerate(blueprint.vertices)}
        self._operators = [vertex.operator for vertex in blueprint.vertices]
        self.partials: dict[Address, dict[Any, Any]] = {}
        self.groups: dict[Address, tuple[dict[Any, list[Any]], dict[Any, float]]] = {}
        self.records: dict[Address, list[Record]] = {}

    def take(self, parcel: bytes) -> None:
        """Open a parcel."""
        form, name, port, counters, *columns = unpack(parcel)
        address = (self._index[name], port, tuple(counters))
        if form == "partials":
            self._take_partials(address, *columns)
        elif form == "groups":
            self._take_groups(address, *columns)
        else:
            self.records.setdefault(address, []).extend(map(Record._make, zip(*columns, strict=True)))

    def _take_partials(self, address: Address, keys: list[Any], values: list[Any]) -> None:
        known = self.partials.get(address)
        if known is None:
            self.partials[address] = dict(zip(keys, values, strict=True))
            return
        merge = self._operators[address[0]].merge
        key = value = None
        try:
            for key, value in zip(keys, values, strict=True):
                known[key] = merge(known[key], value) if key in known else value
        except BaseException as error:
            raise VertexFailureError(address[0], Record(key, value), error) from error

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
            _latest(stamps, [Record(key, None, ts) for key, ts in zip(keys, times, strict=True)])
