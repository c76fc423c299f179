"""How far the sources of a job have been read, and how far they could be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.engine.blueprint import Blueprint
from penstock.errors import connector_call
from penstock.graph.ends import Position, Source

T = TypeVar("T")


class SourcePositions:
    """Asks all sources of a job; what one of them raises is given its name."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._job = blueprint.job
        self._sources = blueprint.sources
        self._natives = blueprint.read_by_spark

    def begin(self) -> dict[str, Position]:
        """Return where each source begins."""
        return {name: self._ask(name, source.begin) for name, source in self._sources.items()}

    def latest(self, after: Mapping[str, Position]) -> dict[str, Position]:
        """Return how far the next batch could read."""
        return {name: self._ask(name, source.latest, self._from(name, after)) for name, source in self._all()}

    def splits(self, start: Mapping[str, Position], end: Mapping[str, Position]) -> list[tuple[str, Any]]:
        """Return the parts of a range, each with the name of its source."""
        # What Spark itself reads is not for Python; it is asked for the same range.
        # A batch that was planned before a source joined the job has no end for it.
        return [
            (name, split)
            for name, source in self._all()
            if name in end and not self._native(name, start, end)
            for split in self._ask(name, source.splits, self._from(name, start), end[name])
        ]

    def lanes(self, end: Mapping[str, Position]) -> dict[str, list[str]]:
        """Return by source the lanes that have something to read up to a position."""
        return self._at(end, lambda source: source.lanes)

    def unread(self, end: Mapping[str, Position]) -> dict[str, list[str]]:
        """Return by source the lanes that are known to have something to read behind a position."""
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
        """Return the ordered stream that a part belongs to."""
        return f"{name}:{self._ask(name, self._sources[name].lane, split)}"

    @property
    def bounded(self) -> bool:
        """Whether all sources come to an end."""
        return all(source.bounded for source in self._sources.values())

    def _native(self, name: str, start: Mapping[str, Position], end: Mapping[str, Position]) -> bool:
        return self.native(name, start, end) is not None

    def native(self, name: str, start: Mapping[str, Position], end: Mapping[str, Position]) -> Any:
        """Return how Spark itself reads the range of a source; None when Python reads it."""
        if name not in self._natives or name not in end:
            return None
        source: Any = self._sources[name]
        return self._ask(name, source.native, self._from(name, start), end[name])

    def lag(self, after: Mapping[str, Position]) -> int | None:
        """Return how many records wait, as far as the sources can tell."""
        counts = [self._ask(name, source.lag, self._from(name, after)) for name, source in self._all()]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def exhausted(self, after: Mapping[str, Position]) -> bool:
        """Whether there is nothing to read behind a position."""
        reached = {name: self._from(name, after) for name in self._sources}
        return self.latest(reached) == reached

    def _all(self) -> list[tuple[str, Source]]:
        return list(self._sources.items())

    def _from(self, name: str, after: Mapping[str, Position]) -> Position:
        """A source that has joined the job since begins at its beginning."""
        return after.get(name) or self._ask(name, self._sources[name].begin)

    def _ask(self, name: str, question: Callable[..., T], *arguments: Any) -> T:
        with connector_call(self._job, name):
            return question(*arguments)
