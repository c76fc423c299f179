"""Parcels: the units of data that go through the shuffle.

A task's outbox groups or merges records by key and packs them; a bucket's inbox unpacks them. A parcel
holds, as columns, all records of one task for one bucket of one vertex. It can also be split by key for
another number of buckets. Only this module depends on the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.columnar_aggregation import partials
from penstock.engine.execution.parcel_columns import (
    GROUPS,
    ParcelColumns,
    Run,
    by_key,
    by_value,
    joined,
    origin_counts,
    runs_of,
)
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

BY_ORIGIN = "by origin"
"""The first item of a parcel from after the shuffle. Two columns follow: the buckets that have emitted its
rows, and how many consecutive rows each of them has emitted."""

_HEAD = 6
"""The number of items before the columns: form, vertex, port, loop counters, cell or instance, and lane."""


def repartition_parcel(
    parcel: bytes, buckets: int, place: Callable[[str, Any], int]
) -> list[tuple[int, bytes]]:
    """Split a parcel by key into one for each target bucket."""
    head, runs = _opened(unpack(parcel))
    form, name, *_, cell, _ = head
    if form == FOR_INSTANCE:
        return [(cell % buckets, parcel)]
    chosen: dict[int, list[Run]] = {}
    for run in runs:
        for key, row in by_key(form, run.columns):
            chosen.setdefault(place(name, key), []).append(Run(run.origin, row))
    return [(bucket, pack(_content(head, rows))) for bucket, rows in sorted(chosen.items())]


def _content(head: tuple[Any, ...], runs: Sequence[Run]) -> tuple[Any, ...]:
    """Return the content of a parcel: what its rows are, and the rows."""
    form = head[0]
    whole = (*head, *joined(form, [run.columns for run in runs]))
    return whole if runs[0].origin is None else (BY_ORIGIN, *origin_counts(runs), *whole)


def _opened(content: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Run]]:
    """Return what :func:`_content` was made of."""
    if content[0] != BY_ORIGIN:
        return content[:_HEAD], [Run(None, content[_HEAD:])]
    _, origins, counts, *rest = content
    return tuple(rest[:_HEAD]), list(runs_of(rest[0], origins, counts, tuple(rest[_HEAD:])))


FLUSH_AT = 200_000
"""The number of records or keys at which an outbox is drained: bounds the memory of a task."""


@dataclass
class _Groups:
    values: dict[Any, list[Any]] = field(default_factory=dict)
    stamps: dict[Any, float] = field(default_factory=dict)


_Target = tuple[int, str, Address, Cell | int | None]
"""What the rows of a parcel have in common: bucket, form, address, and cell or instance."""


@dataclass
class _Buffers:
    """The records that an outbox holds, of one origin or of its whole task."""

    partials: dict[tuple[Address, Cell | None], dict[Any, Any]] = field(default_factory=dict)
    groups: dict[Address, _Groups] = field(default_factory=dict)
    plain: dict[tuple[Address, Cell | None], list[Record]] = field(default_factory=dict)
    for_instances: dict[tuple[Address, int], list[Record]] = field(default_factory=dict)


class Outbox:
    """Collects the records that one task sends over keyed edges.

    After the shuffle the records of each bucket are kept apart (``by_origin``): the order in which their
    targets open them must not depend on which buckets are in one task.
    """

    def __init__(
        self, blueprint: Blueprint, error_handler: ErrorHandlers, lane: str = "", *, by_origin: bool = False
    ) -> None:
        self._vertices = blueprint.vertices
        self._buckets = blueprint.buckets
        self._instances = blueprint.instances
        self._turns: dict[int, int] = {}
        self._first = 0
        self._recovers = error_handler
        self._lane = lane
        self._by_origin = by_origin
        self._origin: int | None = None
        self._held = _Buffers()
        """The buffers of the current origin."""
        self._filled: dict[int | None, _Buffers] = {None: self._held}
        self._waiting = 0

    def begin(self, number: int) -> None:
        """Set the part or bucket of the following records; it determines the first instance in turn."""
        self._turns = {}
        self._first = number
        if self._by_origin:
            self._hold(number)

    def _hold(self, origin: int | None) -> None:
        """Set the origin of the following records. Each has one set of buffers, in which keys are merged."""
        self._origin = origin
        self._held = self._filled.setdefault(origin, _Buffers())

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to send."""
        return self._waiting == 0

    @property
    def full(self) -> bool:
        """Return whether the outbox should be drained."""
        return self._waiting >= FLUSH_AT

    def add(self, address: Address, records: list[Record], cell: Cell | None = None) -> None:
        """Add records for a vertex after a keyed edge; ``cell`` is the range of their windows."""
        spec = self._vertices[address[0]]
        if can_merge(spec) and (cell is not None or spec.window is None):
            into = self._held.partials.setdefault((address, cell), {})
            before = len(into)
            merge_records(spec, records, into, self._recovers(address[0], address[2]))
            self._waiting += len(into) - before
            return
        self._waiting += len(records)
        if isinstance(spec.operator, StatefulTask) and spec.window is None:
            self._group(address, records)
            return
        kept = self._held.plain.setdefault((address, cell), [])
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
                self._held.for_instances.setdefault((address, instance), []).extend(records)
            self._waiting += number * len(records)
            return
        self._waiting += len(records)
        if distribution is Distribution.BY_KEY:
            for instance, chosen in self._split_records(address, records, number):
                self._held.for_instances.setdefault((address, instance), []).extend(chosen)
            return
        turn = self._turns.get(vertex, self._first)
        for step in range(min(number, len(records))):
            self._held.for_instances.setdefault((address, (turn + step) % number), []).extend(
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
        known = self._held.partials.get((address, cell))
        if known is None:
            self._held.partials[address, cell] = merged
            self._waiting += len(merged)
            return
        merge = merge_function(self._vertices[address[0]])
        before = len(known)
        for key, partial in merged.items():
            merge_one(merge, known, key, partial)
        self._waiting += len(known) - before

    def _group(self, address: Address, records: list[Record]) -> None:
        groups = self._held.groups.setdefault(address, _Groups())
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

    def drain(self, settle: Callable[[int | None], None]) -> Iterator[tuple[int, bytes]]:
        """Yield parcels with their buckets, and remove them.

        Keys and values that cannot be sent are only detected here. They may flow on from a side port, into
        this outbox again: ``settle`` lets the records of an origin do so.
        """
        filled, self._filled, self._waiting = self._filled, {}, 0
        self._hold(self._origin)
        runs: dict[_Target, list[Run]] = {}
        for origin, held in filled.items():
            self._hold(origin)
            for target, columns in self._divided(held):
                runs.setdefault(target, []).append(Run(origin, columns))
            settle(origin)
        for target, its_runs in runs.items():
            yield from self._seal(target, its_runs, settle)

    def _divided(self, held: _Buffers) -> Iterator[tuple[_Target, ParcelColumns]]:
        """Yield the columns of the records in buffers, by form, target and bucket."""
        for (address, cell), merged in held.partials.items():
            for bucket, keys in self._split(address, list(merged), merged.__getitem__):
                yield (bucket, "partials", address, cell), (keys, [merged[key] for key in keys])
        for address, its_groups in held.groups.items():
            values, stamps = its_groups.values, its_groups.stamps
            for bucket, keys in self._split(address, list(values), values.__getitem__):
                lists = [values[key] for key in keys]
                times = [stamps.get(key) for key in keys] if stamps else None
                flat = list(chain.from_iterable(lists))
                sizes = [len(one) for one in lists]
                yield (bucket, GROUPS, address, None), (keys, sizes, flat, times)
        for (address, cell), records in held.plain.items():
            for bucket, chosen in self._split_records(address, records, self._buckets):
                yield (bucket, "records", address, cell), _columns(chosen)
        for (address, instance), records in held.for_instances.items():
            if records:
                bucket = instance % self._buckets
                yield (bucket, FOR_INSTANCE, address, instance), _columns(records)

    def _seal(
        self, target: _Target, runs: list[Run], settle: Callable[[int | None], None]
    ) -> Iterator[tuple[int, bytes]]:
        bucket, form, address, cell = target
        vertex, port, counters = address
        spec = self._vertices[vertex]
        head = (form, spec.name, port, counters, cell, self._lane)
        try:
            packed = pack(_content(head, runs))
        except Exception as error:
            if not spec.policy.discard:
                raise VertexFailureError(vertex, None, error) from error
        else:
            yield bucket, packed
            return
        for run in runs:
            self._hold(run.origin)
            for record, columns in by_value(form, run.columns):
                try:
                    packed = pack(_content(head, [Run(run.origin, columns)]))
                except Exception as error:
                    self._recovers(vertex, counters)(record, error, None)
                else:
                    yield bucket, packed
            settle(run.origin)

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


def _columns(records: list[Record]) -> ParcelColumns:
    return tuple(list(column) for column in zip(*records, strict=True))


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

    def take(self, parcels: Iterable[bytes | memoryview]) -> None:
        """Unpack all parcels of the bucket, which are given in the order of their positions.

        Rows from after the shuffle come first, in the order of their origins.
        """
        returned: list[tuple[tuple[Any, ...], Run]] = []
        for parcel in parcels:
            head, runs = _opened(unpack(parcel))
            if runs[0].origin is not None:
                returned += ((head, run) for run in runs)
                continue
            self._take_returned(returned)
            self._take(head, runs[0])
        self._take_returned(returned)

    def _take_returned(self, returned: list[tuple[tuple[Any, ...], Run]]) -> None:
        for head, run in sorted(returned, key=lambda one: one[1].origin or 0):
            self._take(head, run)
        returned.clear()

    def _take(self, head: tuple[Any, ...], run: Run) -> None:
        form, name, port, counters, cell, lane = head
        address = (self._index[name], port, tuple(counters))
        if form == "partials":
            self._take_partials((address, cell), *run.columns)
        elif form == GROUPS:
            self._take_groups(address, *run.columns)
        else:
            records = list(map(Record._make, zip(*run.columns, strict=True)))
            if form == FOR_INSTANCE:
                self.for_instances.setdefault(address, {}).setdefault(cell, []).append((lane, records))
            else:
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
            known = self.partials[address] = dict(zip(keys, values, strict=True))
            if len(known) == len(keys):
                return
            known.clear()  # Keys that are there more than once must be merged.
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
