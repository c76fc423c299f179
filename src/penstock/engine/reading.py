"""Reading a part of a source, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.columns import Columns
from penstock.engine.blueprint import Blueprint
from penstock.errors import connecting
from penstock.graph.ends import Rejected
from penstock.record import Record

Chunk = list[Record] | Columns | Rejected
"""What a source gives at a time."""

_CHUNK = 10_000


def read_source(blueprint: Blueprint, vertex: int, split: Any) -> Iterator[Chunk]:
    """Read a part of a source, and cut it in the same places for all replicas."""
    chunks = _chunks(blueprint, vertex, split)
    return chunks if blueprint.member is None else evenly_cut(chunks)


def evenly_cut(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
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
    chunks: Iterator[Chunk] | None = None
    while True:
        with connecting(blueprint.job, blueprint.vertices[vertex].name):
            chunks = chunks or iter(blueprint.vertices[vertex].operator.read(split))
            records = next(chunks, None)
        if records is None:
            return
        yield records
