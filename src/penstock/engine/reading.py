"""Reading a part of a source, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.errors import ShortReadError, connector_call
from penstock.graph.ends import Rejected, Source
from penstock.record import Record

Chunk = list[Record] | Columns | Rejected
"""What a source gives at a time."""

_CHUNK = 10_000


def read_source(blueprint: Blueprint, vertex: int, split: Any) -> Iterator[Chunk]:
    """Read a part of a source, and cut it in the same places for all replicas."""
    chunks = _chunks(blueprint, vertex, split)
    return chunks if blueprint.replica_spec is None else rechunk(chunks)


def rechunk(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Cut what is read anew: a log whose segments are joined meanwhile gives the same records otherwise cut.

    Where records come to a vertex on two ways, the cuts decide which of them come first.
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
    """Read a part of a source. Only what the source itself raises is given its name."""
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
            f"it gave {given} records of a part that has {planned}: this process does not see all that the"
            " one has seen that planned the batch, as on a network file system whose view is not up to date."
            " Nothing of the batch counts; start the job again, and it goes on from there"
        )
