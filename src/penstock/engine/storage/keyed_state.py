"""Keyed state on disk: a chain of files for each bucket, which a batch extends by a section of one file.

A task writes what a batch has changed in its buckets as one shared file. A delta holds the keys that the
batch has changed; now and then a bucket gets a base instead, which holds everything and begins its chain
anew. Large bases are files of their own. Only the ledger entry names the newest file of a bucket
(``StateHead``), so a file of a failed attempt is never part of a chain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from penstock.engine.record_digest import add_digests, digest
from penstock.engine.storage.serialization import pack, read_sealed, unpack, write_sealed
from penstock.engine.storage.shared_state_file import SharedFile, SharedFileWriter
from penstock.engine.storage.state_chain import RewritingRule, StateFile, StateHead, mean_bytes
from penstock.local_files import sync

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


_SHARED_FOLDER = "shared"
"""The folder of shared files, beside those of the buckets."""

_OWN_FILE_BYTES = 1 << 16
"""A base of this size or more is a file of its own: it lives long, and a shared file would be kept for it."""

_OPEN_FILES = 512
"""How many shared files a reader keeps open: the chains of its buckets are mostly in the same ones."""

Content = dict[str, tuple[list[Any], list[Any]]]
"""Keys and states by section of the state."""


@dataclass
class _Cached:
    file: StateFile | None
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


class TaskState:
    """The keyed state of the buckets of one task in one batch.

    ``heads`` are the heads of all buckets of the task. What is written counts once the ledger names the new
    heads. If the task fails before ``finish``, its shared file is removed.
    """

    def __init__(
        self,
        folder: Path,
        heads: Mapping[int, StateHead | None],
        batch: int,
        attempt: str,
        *,
        lasting: bool = False,
        synced: bool = False,
    ) -> None:
        self.folder = folder
        self.heads = heads
        self.reader = StateReader(folder)
        self._rule = RewritingRule(batch, heads.values())
        self._writer = StateWriter(
            folder, batch, attempt, lasting=lasting, synced=synced, written=self._rule.written
        )
        self._touched: dict[int, BucketState] = {}

    def __enter__(self) -> TaskState:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        self._writer.discard()

    def bucket(self, bucket: int) -> BucketState:
        """Return the state of a bucket, to be changed and saved."""
        self._touched[bucket] = state = BucketState(self, bucket)
        return state

    def save(self, state: BucketState) -> None:
        """Write what has changed in a bucket; raises UnkeepableStateError if it cannot be stored."""
        if not state.has_changed:
            return
        head = self.heads.get(state.bucket)
        if head is None or self._rule.needs_base(state.bucket, head):
            self._writer.add_base(state.bucket, state.states)
        else:
            self._writer.add_delta(state.bucket, head, state.changes())

    def overdue(self) -> list[int]:
        """Return buckets which are to be rewritten although the batch has not touched them."""
        return self._rule.overdue({b: head for b, head in self.heads.items() if b not in self._touched})

    def rewrite(self, bucket: int) -> None:
        """Write all state of a bucket that the batch has not touched, as a file of its own.

        The bucket is hardly touched, and would soon be overdue again if it needed a shared file.
        """
        self._writer.add_base(bucket, self.bucket(bucket).states, alone=True)

    def finish(self) -> dict[int, StateHead]:
        """Complete the shared file and return the new heads of all buckets that have changed."""
        heads = self._writer.finish()
        for bucket, state in self._touched.items():
            head = heads.get(bucket, self.heads.get(bucket))
            newest = head.newest if head is not None else None
            _cache[state.place] = _Cached(newest, state.states, state.indexes)
        return heads


class BucketState:
    """The state of one bucket during one batch."""

    def __init__(self, task: TaskState, bucket: int) -> None:
        self.bucket = bucket
        self.place = (str(task.folder), bucket)
        # Removed from the cache while it is changed, so that a failed attempt leaves nothing behind.
        cached = _cache.pop(self.place, None)
        head = task.heads.get(bucket)
        newest = head.newest if head is not None else None
        self.states = _catch_up(task.reader, bucket, newest, cached)
        self.indexes: dict[str, Any] = cached.indexes if cached and cached.file == newest else {}
        """Indexes for finding entries quickly, by section. Cached and rebuilt together with the states."""
        self._changed: dict[str, list[Any]] = {}

    @property
    def has_changed(self) -> bool:
        """Whether the batch has changed a state."""
        return bool(self._changed)

    def changed(self, vertex: str, keys: list[Any]) -> None:
        """Mark the states of these keys as changed; a key without a state is removed."""
        self._changed.setdefault(vertex, []).extend(keys)

    def changes(self) -> Content:
        """Return the changed keys and their states, which are None for removed keys."""
        return {section: self._delta(section) for section in self._changed}

    def digests(self) -> dict[str, int]:
        """Return the digest of the changed states by vertex."""
        found: dict[str, int] = {}
        for section, delta in self.changes().items():
            add_digests(found, {vertex_of(section): digest(zip(repeat(section), *delta))})
        return found

    def _delta(self, section: str) -> tuple[list[Any], list[Any]]:
        keys = list(dict.fromkeys(self._changed[section]))
        held = self.states.get(section, {})
        return keys, [held.get(key) for key in keys]


class StateReader:
    """Reads the files of chains. Keeps shared files open, because other buckets are in the same ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, SharedFile] = {}

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def read_bucket(self, bucket: int, head: StateHead) -> States:
        """Return all state of a bucket, read from disk."""
        return _catch_up(self, bucket, head.newest, None)

    def read(self, bucket: int, file: StateFile) -> tuple[StateFile | None, Content]:
        """Return what a file has of a bucket, and the file that the chain continues with."""
        path = file_path(self._folder, bucket, file)
        if not file.shared:
            data = read_sealed(path)
            return parent_of(data), _decode(data)
        opened = self._open.get(file.name)
        if opened is not None:
            parent, data = opened.read(bucket)
        elif len(self._open) < _OPEN_FILES:
            opened = self._open[file.name] = SharedFile(path)
            parent, data = opened.read(bucket)
        else:
            with SharedFile(path) as opened:
                parent, data = opened.read(bucket)
        return parent, _decode(data)


def read_bucket(folder: Path, bucket: int, head: StateHead) -> States:
    """Return all state of a bucket, read from disk."""
    with StateReader(folder) as reader:
        return reader.read_bucket(bucket, head)


def parent_of(data: bytes) -> StateFile | None:
    """Return the file that the file of one bucket with the given data follows; None for a base.

    Only version 0.1.0 has written deltas that are files of one bucket.
    """
    parent: str | None = unpack(data)[0]
    return StateFile(parent, shared=False) if parent is not None else None


class StateWriter:
    """Writes state of several buckets: what one task has changed in one batch, or all that there is.

    ``written`` is the mean size of the shared files before this one.
    """

    def __init__(
        self,
        folder: Path,
        batch: int,
        attempt: str,
        *,
        lasting: bool = False,
        synced: bool = False,
        written: int = 0,
    ) -> None:
        self._folder = folder
        self._batch = batch
        self._name = f"{batch:012d}-{attempt}"
        self._shared = StateFile(f"{self._name}.sections", shared=True)
        self._lasting = lasting
        self._synced = synced
        self._written = written
        self._file = SharedFileWriter(shared_folder(folder) / self._shared.name, synced=synced)
        self._heads: dict[int, StateHead] = {}

    def add_base(self, bucket: int, states: States, *, alone: bool = False) -> None:
        """Write all state of a bucket; as a file of its own if it is large, or if ``alone``."""
        data = _encode({v: (list(held), list(held.values())) for v, held in states.items()}, self._lasting)
        if alone or len(data) >= _OWN_FILE_BYTES:
            file = StateFile(f"{self._name}.base", shared=False)
            path = file_path(self._folder, bucket, file)
            _make_folder(path.parent, synced=self._synced)
            write_sealed(path, data, synced=self._synced)
            self._heads[bucket] = StateHead(file.name, self._batch, len(data), 0, 0)
        else:
            self._file.add(bucket, None, data)
            self._heads[bucket] = StateHead(self._shared.name, self._batch, len(data), 0, 0, self._batch)

    def add_delta(self, bucket: int, head: StateHead, content: Content) -> None:
        """Write what has changed in a bucket since a head."""
        data = _encode(content, self._lasting)
        self._file.add(bucket, head.newest, data)
        self._heads[bucket] = StateHead(
            self._shared.name,
            head.base_batch,
            head.base_bytes,
            head.delta_bytes + len(data),
            head.depth + 1,
            head.shared_since if head.shared_since is not None else self._batch,
        )

    def finish(self) -> dict[int, StateHead]:
        """Complete the shared file and return the new heads."""
        written = mean_bytes(self._written, self._file.finish())
        for head in self._heads.values():
            head.shared_bytes = written
        return self._heads

    def discard(self) -> None:
        """Remove the shared file unless it is complete."""
        self._file.discard()


def _make_folder(place: Path, *, synced: bool) -> None:
    if not place.is_dir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if synced:
            sync(place.parent)


def drop_cached_state(folder: Path, *, since: int = 0) -> None:
    """Remove buckets with numbers from ``since`` from the cache, when this process no longer needs them."""
    for place in [place for place in _cache if place[0] == str(folder) and place[1] >= since]:
        del _cache[place]


def file_path(folder: Path, bucket: int, file: StateFile) -> Path:
    """Return the path of a file of the chain of a bucket; ``folder`` is that of all state."""
    return (shared_folder(folder) if file.shared else bucket_folder(folder, bucket)) / file.name


def bucket_folder(folder: Path, bucket: int) -> Path:
    """Return the folder of the files of one bucket; ``folder`` is that of all state."""
    return folder / f"{bucket:05d}"


def shared_folder(folder: Path) -> Path:
    """Return the folder of shared files; ``folder`` is that of all state."""
    return folder / _SHARED_FOLDER


def remove_before(folder: Path, batch: int) -> None:
    """Remove the state files in a folder, of a bucket or the shared one, that are older than a batch."""
    with suppress(FileNotFoundError):  # A bucket without large bases has no folder.
        for name in os.listdir(folder):
            number = name.partition("-")[0]
            if number.isdigit() and int(number) < batch:
                (folder / name).unlink(missing_ok=True)


def _catch_up(reader: StateReader, bucket: int, newest: StateFile | None, cached: _Cached | None) -> States:
    """Return the states as of the newest file, starting from the cache if its file is part of the chain."""
    if cached is not None and cached.file == newest:
        return cached.states
    ahead: list[Content] = []
    states: States = {}
    file = newest
    while file is not None:
        if cached is not None and file == cached.file:
            states = cached.states
            break
        file, content = reader.read(bucket, file)
        ahead.append(content)
    for content in reversed(ahead):
        for vertex, (keys, values) in content.items():
            held = states.setdefault(vertex, {})
            held.update(zip(keys, values, strict=True))
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    del held[key]
    return states


def _encode(content: Content, lasting: bool) -> bytes:
    # Each vertex is packed separately, so that those with plain keys and states are packed fast.
    sections = []
    for vertex, columns in content.items():
        try:
            sections.append(pack(columns, lasting=lasting))
        except Exception as error:
            raise UnkeepableStateError(vertex_of(vertex)) from error
    # Version 0.1.0 has the name of the file before it in place of None.
    return pack((None, list(content), sections))


def _decode(data: bytes) -> Content:
    _, names, sections = unpack(data)
    return {name: unpack(section) for name, section in zip(names, sections, strict=True)}
