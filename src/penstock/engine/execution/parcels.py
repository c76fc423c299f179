"""Parcels: the units of data that go through the shuffle.

A task's outbox groups or merges records by key and packs them; a bucket's inbox unpacks them. A parcel
holds, as columns, all records of one task for one bucket of one vertex. It can also be split by key for
another number of buckets. Only this module depends on the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.columnar_aggregation import partials
from penstock.engine.execution.partial_results import (
    FOR_INSTANCE,
    Address,
    Cell,
    ErrorHandlers,
    can_merge,
    keep_latest_times,
    merge_function,
    merge_one,
    merge_records,
)
from penstock.engine.execution.vertex_step import VertexFailureError
from penstock.engine.storage.serialization import pack, unpack
from penstock.graph.edge import Distribution
from penstock.graph.tasks import CombiningTask, StatefulTask
from penstock.key_hash import key_hash
from penstock.record import Record
from penstock.vertex_calls import vertex_call


def repartition_parcel(
    parcel: bytes, buckets: int, place: Callable[[str, Any], int]
) -> list[tuple[int, bytes]]:
    """Split a parcel by key into one for each target bucket."""
    form, name, port, counters, cell, lane, keys, *columns = unpack(parcel)
    if form == FOR_INSTANCE:
        return [(cell % buckets, parcel)]
    if form == "groups":
        sizes, flat, times = columns
        values, start = [], 0
        for size in sizes:
            values.append(flat[start : start + size])
            start += size
        columns = [values, times or [None] * len(keys)]
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for row in zip(keys, *columns, strict=True):
        rows.setdefault(place(name, row[0]), []).append(row)
    dealt = []
    for bucket, its_rows in sorted(rows.items()):
        its_keys, *its_columns = (list(column) for column in zip(*its_rows, strict=True))
        if form == "groups":
            lists, times = its_columns
            flat = [value for values in lists for value in values]
            its_columns = [[len(values) for values in lists], flat, times]
        dealt.append((bucket, pack((form, name, port, counters, cell, lane, its_keys, *its_columns))))
    return dealt


FLUSH_AT = 200_000
"""The number of records or keys at which an outbox is drained: bounds the memory of a task."""


@dataclass
class _Groups:
    values: dict[Any, list[Any]] = field(default_factory=dict)
    stamps: dict[Any, float] = field(default_factory=dict)


class Outbox:
    """Collects the records that one task sends over keyed edges."""

    def __init__(self, blueprint: Blueprint, error_handler: ErrorHandlers, lane: str = "") -> None:
        self._vertices = blueprint.vertices
        self._buckets = blueprint.buckets
        self._instances = blueprint.instances
        self._turns: dict[int, int] = {}
        self._first = 0
        self._recovers = error_handler
        self._lane = lane
        self._partials: dict[tuple[Address, Cell | None], dict[Any, Any]] = {}
        self._groups: dict[Address, _Groups] = {}
        self._plain: dict[tuple[Address, Cell | None], list[Record]] = {}
        self._for_instances: dict[tuple[Address, int], list[Record]] = {}
        self._waiting = 0

    def begin(self, number: int) -> None:
        """Set the part or bucket of the following records; it determines the first instance in turn."""
        self._turns = {}
        self._first = number

    @property
    def full(self) -> bool:
        """Return whether the outbox should be drained."""
        return self._waiting >= FLUSH_AT

    def add(self, address: Address, records: list[Record], cell: Cell | None = None) -> None:
        """Add records for a vertex after a keyed edge; ``cell`` is the range of their windows."""
        spec = self._vertices[address[0]]
        if can_merge(spec) and (cell is not None or spec.window is None):
            into = self._partials.setdefault((address, cell), {})
            before = len(into)
            merge_records(spec, records, into, self._recovers(address[0], address[2]))
            self._waiting += len(into) - before
            return
        self._waiting += len(records)
        if isinstance(spec.operator, StatefulTask) and spec.window is None:
            self._group(address, records)
            return
        kept = self._plain.setdefault((address, cell), [])
        try:
            for record in records:
                hash(record[0])
        except Exception:
            kept.extend(record for record in records if self._is_valid(address, record))
        else:
            kept.extend(records)

    def add_for_instances(self, address: Address, records: list[Record], distribution: Distribution) -> None:
        """Add records for the instances of a vertex."""
        vertex = address[0]
        number = self._instances[vertex]
        if distribution is Distribution.TO_ALL:
            for instance in range(number):
                self._for_instances.setdefault((address, instance), []).extend(records)
            self._waiting += number * len(records)
            return
        self._waiting += len(records)
        if distribution is Distribution.BY_KEY:
            for instance, chosen in self._split_records(address, records, number):
                self._for_instances.setdefault((address, instance), []).extend(chosen)
            return
        turn = self._turns.get(vertex, self._first)
        for step in range(min(number, len(records))):
            self._for_instances.setdefault((address, (turn + step) % number), []).extend(
                records[step::number]
            )
        self._turns[vertex] = (turn + len(records)) % number

    def merge_columns(self, vertex: int, columns: Columns) -> dict[Cell | None, dict[Any, Any]] | None:
        """Merge columns without creating records; return None if that is not possible."""
        spec = self._vertices[vertex]
        if spec.window is not None or not isinstance(spec.operator, CombiningTask):
            return None
        merged = partials(spec.operator, columns)
        return None if merged is None else {None: merged}

    def add_partials(self, address: Address, cell: Cell | None, merged: dict[Any, Any]) -> None:
        """Add partial results for a vertex."""
        known = self._partials.get((address, cell))
        if known is None:
            self._partials[address, cell] = merged
            self._waiting += len(merged)
            return
        merge = merge_function(self._vertices[address[0]])
        before = len(known)
        for key, partial in merged.items():
            merge_one(merge, known, key, partial)
        self._waiting += len(known) - before

    def _group(self, address: Address, records: list[Record]) -> None:
        groups = self._groups.setdefault(address, _Groups())
        find = groups.values.get
        try:
            keep_latest_times(groups.stamps, records)
            keys = [record[0] for record in records]
            found = list(map(find, keys))
        except Exception:
            records = [record for record in records if self._is_valid(address, record, groups.stamps)]
            keys = [record[0] for record in records]
            found = list(map(find, keys))
        for key, record, values in zip(keys, records, found, strict=True):
            if values is not None:
                values.append(record[1])
            elif (fresh := find(key)) is not None:
                fresh.append(record[1])
            else:
                groups.values[key] = [record[1]]

    def _is_valid(self, address: Address, record: Record, stamps: dict[Any, float] | None = None) -> bool:
        """Return whether a record has a valid key, and a time if needed; otherwise handle it as an error."""
        try:
            hash(record[0])
            if stamps is not None:
                keep_latest_times(stamps, [record])
        except Exception as error:
            self._recovers(address[0], address[2])(record, error, None)
            return False
        return True

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield parcels with their buckets, and remove them."""
        merged_, self._partials = self._partials, {}
        groups, self._groups = self._groups, {}
        plain, self._plain = self._plain, {}
        dealt, self._for_instances = self._for_instances, {}
        self._waiting = 0
        for (address, cell), merged in merged_.items():
            for bucket, keys in self._split(address, list(merged), merged.__getitem__):
                yield from self._seal(bucket, "partials", address, cell, keys, [merged[key] for key in keys])
        for address, its_groups in groups.items():
            values, stamps = its_groups.values, its_groups.stamps
            for bucket, keys in self._split(address, list(values), values.__getitem__):
                lists = [values[key] for key in keys]
                sizes = [len(one) for one in lists]
                times = [stamps.get(key) for key in keys] if stamps else None
                flat = list(chain.from_iterable(lists))
                yield from self._seal(bucket, "groups", address, None, keys, sizes, flat, times)
        for (address, cell), records in plain.items():
            for bucket, chosen in self._split_records(address, records, self._buckets):
                yield from self._seal(bucket, "records", address, cell, *_columns(chosen))
        for (address, instance), records in dealt.items():
            if records:
                bucket = instance % self._buckets
                yield from self._seal(bucket, FOR_INSTANCE, address, instance, *_columns(records))

    def _seal(
        self, bucket: int, form: str, address: Address, cell: Cell | int | None, *columns: Any
    ) -> Iterator[tuple[int, bytes]]:
        vertex, port, counters = address
        spec = self._vertices[vertex]
        try:
            packed = pack((form, spec.name, port, counters, cell, self._lane, *columns))
        except Exception as error:
            if not spec.policy.discard:
                raise VertexFailureError(vertex, None, error) from error
        else:
            yield bucket, packed
            return
        for row in _rows(form, columns):
            try:
                packed = pack((form, spec.name, port, counters, cell, self._lane, *row.columns))
            except Exception as error:
                self._recovers(vertex, counters)(row.record, error, None)
            else:
                yield bucket, packed

    def _split(
        self, address: Address, keys: list[Any], value_of: Callable[[Any], Any]
    ) -> Iterator[tuple[int, list[Any]]]:
        chosen: list[list[Any]] = [[] for _ in range(self._buckets)]
        rest = iter(keys)
        while True:
            key = None
            try:
                for key in rest:
                    chosen[key_hash(key) % self._buckets].append(key)
            except Exception as error:
                self._recovers(address[0], address[2])(Record(key, value_of(key)), error, None)
            else:
                break
        for bucket, its_keys in enumerate(chosen):
            if its_keys:
                yield bucket, its_keys

    def _split_records(
        self, address: Address, records: list[Record], places: int
    ) -> Iterator[tuple[int, list[Record]]]:
        chosen: dict[int, list[Record]] = {}
        rest = iter(records)
        while True:
            record = Record()
            try:
                for record in rest:
                    chosen.setdefault(key_hash(record[0]) % places, []).append(record)
            except Exception as error:
                self._recovers(address[0], address[2])(record, error, None)
            else:
                break
        yield from sorted(chosen.items())


def _columns(records: list[Record]) -> Iterator[list[Any]]:
    return (list(column) for column in zip(*records, strict=True))


@dataclass
class _Row:
    record: Record
    columns: tuple[Any, ...]


def _rows(form: str, columns: tuple[Any, ...]) -> Iterator[_Row]:
    """Split a parcel's columns into rows, so that one that cannot be pickled does not block the others."""
    if form != "groups":
        for row in zip(*columns, strict=True):
            yield _Row(Record(row[0], row[1]), tuple([cell] for cell in row))
        return
    keys, sizes, flat, times = columns
    values = iter(flat)
    for number, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        stamp = None if times is None else [times[number]]
        for value in islice(values, size):
            yield _Row(Record(key, value), ([key], [1], [value], stamp))


class Inbox:
    """Combines the parcels that all tasks have sent to one bucket."""

    def __init__(self, blueprint: Blueprint, error_handler: ErrorHandlers) -> None:
        self._index = {vertex.name: index for index, vertex in enumerate(blueprint.vertices)}
        self._vertices = blueprint.vertices
        self._recovers = error_handler
        self.partials: dict[tuple[Address, Cell | None], dict[Any, Any]] = {}
        self.groups: dict[Address, tuple[dict[Any, list[Any]], dict[Any, float]]] = {}
        self.records: dict[Address, list[tuple[str, Cell | None, list[Record]]]] = {}
        """Records by address, each list with its lane, in the order of the lane."""
        self.for_instances: dict[Address, dict[int, list[tuple[str, list[Record]]]]] = {}
        """Records by address and instance, each list with its lane."""

    def addresses(self) -> list[Address]:
        """Return the addresses that have received records, in an order that depends only on the graph."""
        return sorted(
            {*(address for address, _ in self.partials), *self.groups, *self.records, *self.for_instances}
        )

    def take(self, parcel: bytes | memoryview) -> None:
        """Unpack a parcel."""
        form, name, port, counters, cell, lane, *columns = unpack(parcel)
        address = (self._index[name], port, tuple(counters))
        if form == "partials":
            self._take_partials((address, cell), *columns)
        elif form == "groups":
            self._take_groups(address, *columns)
        elif form == FOR_INSTANCE:
            records = list(map(Record._make, zip(*columns, strict=True)))
            self.for_instances.setdefault(address, {}).setdefault(cell, []).append((lane, records))
        else:
            records = list(map(Record._make, zip(*columns, strict=True)))
            self.records.setdefault(address, []).append((lane, cell, records))

    def in_order(self, address: Address) -> list[tuple[str, Cell | None, list[Record]]]:
        """Return the records for an address, ordered by lane: the speed of tasks must not matter."""
        return sorted(self.records.get(address, ()), key=lambda part: part[0])

    def by_instance(self, address: Address) -> Iterator[tuple[int, list[Record]]]:
        """Yield the instances of an address with their records."""
        for instance, parts in sorted(self.for_instances.get(address, {}).items()):
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
