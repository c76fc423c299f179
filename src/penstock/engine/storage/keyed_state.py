"""Keyed state on disk: a chain of files for each bucket, to which each batch adds one.

A delta holds the keys that one batch has changed; when the deltas become larger than the base, the next file
is a new base. Only the ledger entry names the newest file (``StateHead``), so a file of a failed attempt is
never part of a chain.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from penstock.engine.record_digest import add_digests, digest
from penstock.engine.storage.serialization import pack, read_sealed, unpack, write_sealed
from penstock.local_files import sync


@dataclass
class StateHead:
    """The newest file of a bucket's state, and the sizes and batches of the files before it."""

    file: str
    base_batch: int
    base_bytes: int
    delta_bytes: int
    depth: int


States = dict[str, dict[Any, Any]]
"""States by section and key. A section is the name of a vertex or, for waiting records, a name made by
:func:`waiting_section`."""

_WAITING = "@waiting"


def waiting_section(vertex: str) -> str:
    """Return the section of records that wait at a vertex for the end of a window or for other ports.

    Its keys are tuples that begin with the record's key, so that a batch adds entries instead of rewriting
    a growing one.
    """
    return f"{vertex}{_WAITING}"


def is_waiting(section: str) -> bool:
    """Return whether a section holds waiting records."""
    return section.endswith(_WAITING)


def owner_of(section: str, key: Any) -> Any:
    """Return the record key that determines the bucket of an entry of a section."""
    return key[0] if is_waiting(section) else key


def vertex_of(section: str) -> str:
    """Return the vertex of a section."""
    return section.removesuffix(_WAITING)


_MIN_BASE_BYTES = 1 << 20
"""Below this size deltas may exceed the base: a tiny base would be rewritten too often."""

_MAX_DELTAS = 500
"""The maximum length of a chain: all its files are opened when a bucket is read from disk."""


@dataclass
class _Cached:
    file: str | None
    states: States
    indexes: dict[str, Any]


_cache: dict[tuple[str, int], _Cached] = {}
"""The state of buckets that this worker process has processed. Spark may assign any bucket to any of its
reused worker processes, so cached state is used only if its file is part of the bucket's chain."""


class UnkeepableStateError(Exception):
    """A key or a state of a vertex cannot be stored; the cause is chained."""

    def __init__(self, vertex: str) -> None:
        super().__init__(vertex)
        self.vertex = vertex


class BucketState:
    """The state of one bucket during one batch."""

    def __init__(
        self,
        folder: Path,
        bucket: int,
        head: StateHead | None,
        *,
        lasting: bool = False,
        synced: bool = False,
    ) -> None:
        self._lasting = lasting
        self._synced = synced
        self._folder = folder / f"{bucket:05d}"
        self._place = (str(folder), bucket)
        self._head = head
        # Removed from the cache while it is changed, so that a failed attempt leaves nothing behind.
        cached = _cache.pop(self._place, None)
        newest = head.file if head else None
        self.states = _catch_up(self._folder, newest, cached)
        self.indexes: dict[str, Any] = cached.indexes if cached and cached.file == newest else {}
        """Indexes for finding entries quickly, by section. Cached and rebuilt together with the states."""
        self._changed: dict[str, list[Any]] = {}

    def changed(self, vertex: str, keys: list[Any]) -> None:
        """Mark the states of these keys as changed; a key without a state is removed."""
        self._changed.setdefault(vertex, []).extend(keys)

    def save(self, batch: int, attempt: str) -> StateHead | None:
        """Write the changed states and return the new head; None if nothing has changed."""
        head = self._head
        if not self._changed:
            _cache[self._place] = _Cached(head.file if head else None, self.states, self.indexes)
            return None
        _make_folder(self._folder, synced=self._synced)
        whole = (
            head is None
            or head.delta_bytes > max(head.base_bytes, _MIN_BASE_BYTES)
            or head.depth >= _MAX_DELTAS
        )
        kind = "base" if whole else "delta"
        name = f"{batch:012d}-{attempt}.{kind}"
        if whole:
            content = {v: (list(held), list(held.values())) for v, held in self.states.items()}
            data = _encode(None, content, self._lasting)
        else:
            content = {v: self._delta(v) for v in self._changed}
            data = _encode(head.file if head else None, content, self._lasting)
        write_sealed(self._folder / name, data, synced=self._synced)
        _cache[self._place] = _Cached(name, self.states, self.indexes)
        if whole or head is None:
            return StateHead(name, batch, len(data), 0, 0)
        return StateHead(name, head.base_batch, head.base_bytes, head.delta_bytes + len(data), head.depth + 1)

    def digests(self) -> dict[str, int]:
        """Return the digest of the changed states by vertex."""
        found: dict[str, int] = {}
        for section in self._changed:
            entries = zip(repeat(section), *self._delta(section))
            add_digests(found, {vertex_of(section): digest(entries)})
        return found

    def _delta(self, vertex: str) -> tuple[list[Any], list[Any]]:
        keys = list(dict.fromkeys(self._changed[vertex]))
        held = self.states.get(vertex, {})
        return keys, [held.get(key) for key in keys]


def read_bucket(folder: Path, bucket: int, head: StateHead) -> States:
    """Return all state of a bucket, read from disk."""
    return _catch_up(folder / f"{bucket:05d}", head.file, None)


def parent_of(data: bytes) -> str | None:
    """Return the name of the file that a state file with the given data follows; None for a base."""
    parent: str | None = unpack(data)[0]
    return parent


def write_base(
    folder: Path, bucket: int, states: States, batch: int, attempt: str, *, synced: bool = False
) -> StateHead:
    """Write all state of a bucket as one file."""
    place = folder / f"{bucket:05d}"
    _make_folder(place, synced=synced)
    name = f"{batch:012d}-{attempt}.base"
    data = _encode(None, {v: (list(held), list(held.values())) for v, held in states.items()})
    write_sealed(place / name, data, synced=synced)
    return StateHead(name, batch, len(data), 0, 0)


def _make_folder(place: Path, *, synced: bool) -> None:
    if not place.is_dir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if synced:
            sync(place.parent)


def drop_cached_state(folder: Path, *, since: int = 0) -> None:
    """Remove buckets with numbers from ``since`` from the cache, when this process no longer needs them."""
    for place in [place for place in _cache if place[0] == str(folder) and place[1] >= since]:
        del _cache[place]


def remove_before(folder: Path, bucket: int, base_batch: int) -> None:
    """Remove the state files of a bucket that are older than its base."""
    place = folder / f"{bucket:05d}"
    for name in os.listdir(place):
        if name.partition("-")[0].isdigit() and int(name.partition("-")[0]) < base_batch:
            (place / name).unlink(missing_ok=True)


def _catch_up(folder: Path, newest: str | None, cached: _Cached | None) -> States:
    """Return the states as of the newest file, starting from the cache if its file is part of the chain."""
    if cached is not None and cached.file == newest:
        return cached.states
    ahead: list[dict[str, tuple[list[Any], list[Any]]]] = []
    states: States = {}
    name = newest
    while name is not None:
        if cached is not None and name == cached.file:
            states = cached.states
            break
        parent, content = _decode(read_sealed(folder / name))
        ahead.append(content)
        name = parent
    for content in reversed(ahead):
        for vertex, (keys, values) in content.items():
            held = states.setdefault(vertex, {})
            held.update(zip(keys, values, strict=True))
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    del held[key]
    return states


def _encode(
    parent: str | None, content: dict[str, tuple[list[Any], list[Any]]], lasting: bool = False
) -> bytes:
    # Each vertex is packed separately, so that those with plain keys and states are packed fast.
    sections = []
    for vertex, columns in content.items():
        try:
            sections.append(pack(columns, lasting=lasting))
        except Exception as error:
            raise UnkeepableStateError(vertex_of(vertex)) from error
    return pack((parent, list(content), sections))


def _decode(data: bytes) -> tuple[str | None, dict[str, tuple[list[Any], list[Any]]]]:
    parent, names, sections = unpack(data)
    return parent, {name: unpack(section) for name, section in zip(names, sections, strict=True)}
