"""The sources of a job.

Returns their positions, reads parts of them, and acknowledges what is committed. Errors of a source name its
vertex. This module does not depend on how batches are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.errors import ShortReadError
from penstock.graph.connector_api import Position, Rejected, Source
from penstock.record import Record
from penstock.vertex_calls import connector_call

T = TypeVar("T")


class SourcePositions:
    """The positions of all sources of a job. Errors of a source name its vertex."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._job = blueprint.job
        self._sources = blueprint.sources
        self._natives = blueprint.read_by_spark

    def begin(self) -> dict[str, Position]:
        """Return the first position of each source."""
        return {name: self._ask(name, source.begin) for name, source in self._sources.items()}

    def latest(self, after: Mapping[str, Position]) -> dict[str, Position]:
        """Return the positions up to which the next batch can read."""
        return {name: self._ask(name, source.latest, self._from(name, after)) for name, source in self._all()}

    def splits(self, start: Mapping[str, Position], end: Mapping[str, Position]) -> list[tuple[str, Any]]:
        """Return the parts of a range, each with the name of its source."""
        # Spark itself reads these ranges, not Python.
        # A batch planned before a source was added to the job has no end position for it.
        return [
            (name, split)
            for name, source in self._all()
            if name in end and not self._native(name, start, end)
            for split in self._ask(name, source.splits, self._from(name, start), end[name])
        ]

    def lanes(self, end: Mapping[str, Position]) -> dict[str, list[str]]:
        """Return by source the lanes that have records before a position."""
        return self._at(end, lambda source: source.lanes)

    def unread(self, end: Mapping[str, Position]) -> dict[str, list[str]]:
        """Return by source the lanes that are known to have records after a position."""
        return self._at(end, lambda source: source.unread)

    def _at(
        self, end: Mapping[str, Position], question: Callable[[Source], Callable[[Position], Sequence[str]]]
    ) -> dict[str, list[str]]:
        return {
            name: list(self._ask(name, question(source), end[name]))
            for name, source in self._all()
            if name in end
        }

    def lane(self, name: str, split: Any) -> str:
        """Return the lane (ordered stream) that a part belongs to."""
        return f"{name}:{self._ask(name, self._sources[name].lane, split)}"

    @property
    def bounded(self) -> bool:
        """Whether all sources are bounded."""
        return all(source.bounded for source in self._sources.values())

    def _native(self, name: str, start: Mapping[str, Position], end: Mapping[str, Position]) -> bool:
        return self.native(name, start, end) is not None

    def native(self, name: str, start: Mapping[str, Position], end: Mapping[str, Position]) -> Any:
        """Return the description by which Spark reads the range of a source; None if Python reads it."""
        if name not in self._natives or name not in end:
            return None
        source: Any = self._sources[name]
        return self._ask(name, source.native, self._from(name, start), end[name])

    def lag(self, after: Mapping[str, Position]) -> int | None:
        """Return the number of unread records; None if the sources cannot tell."""
        counts = [self._ask(name, source.lag, self._from(name, after)) for name, source in self._all()]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def exhausted(self, after: Mapping[str, Position]) -> bool:
        """Return whether there is nothing to read after a position."""
        reached = {name: self._from(name, after) for name in self._sources}
        return self.latest(reached) == reached

    def _all(self) -> list[tuple[str, Source]]:
        return list(self._sources.items())

    def _from(self, name: str, after: Mapping[str, Position]) -> Position:
        """Return the position of a source; the first position if the source was added to the job since."""
        return after.get(name) or self._ask(name, self._sources[name].begin)

    def _ask(self, name: str, question: Callable[..., T], *arguments: Any) -> T:
        with connector_call(self._job, name):
            return question(*arguments)


Chunk = list[Record] | Columns | Rejected
"""One chunk of records of a source."""

_CHUNK = 10_000


def read_source(blueprint: Blueprint, vertex: int, split: Any) -> Iterator[Chunk]:
    """Read a part of a source in chunks with the same boundaries in all replicas."""
    chunks = _chunks(blueprint, vertex, split)
    return chunks if blueprint.replica_spec is None else rechunk(chunks)


def rechunk(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Divide records into chunks of fixed size, independent of the chunks of the source.

    Sources may change their chunks, as a log that merges its segments does. If records reach a vertex along
    two paths, the boundaries of chunks determine their order.
    """
    waiting: list[Record] = []
    for chunk in chunks:
        if not isinstance(chunk, list):
            if waiting:
                yield waiting
            yield chunk
            waiting = []
            continue
        waiting += chunk
        whole = len(waiting) - len(waiting) % _CHUNK
        for start in range(0, whole, _CHUNK):
            yield waiting[start : start + _CHUNK]
        del waiting[:whole]
    if waiting:
        yield waiting


def _chunks(blueprint: Blueprint, vertex: int, split: Any) -> Iterator[Chunk]:
    """Read a part of a source. Only errors of the source itself get its name."""
    source: Source = blueprint.vertices[vertex].operator
    chunks: Iterator[Chunk] | None = None
    given = 0
    while True:
        with connector_call(blueprint.job, blueprint.vertices[vertex].name):
            chunks = chunks or iter(source.read(split))
            records = next(chunks, None)
            if records is None:
                _check_number(given, source.records_in(split))
                return
        given += len(records.pieces) if isinstance(records, Rejected) else len(records)
        yield records


def _check_number(given: int, planned: int | None) -> None:
    if planned is not None and given != planned:
        raise ShortReadError(
            f"it returned {given} of {planned} records: this process sees fewer than the process that "
            "planned the batch, for example through a stale network file system. Nothing of the batch was "
            "committed; start the job again to resume with it"
        )


def acknowledge(blueprint: Blueprint, end: Mapping[str, Any]) -> None:
    """Tell the sources the end of a committed batch, before which nothing will be read again."""
    for name, source in blueprint.sources.items():
        position = end["sources"].get(name)
        if position is None:  # The source was added after the batch was planned.
            continue
        with connector_call(blueprint.job, name):
            source.committed(position, f"{blueprint.job}.{name}")
