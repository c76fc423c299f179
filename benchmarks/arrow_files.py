"""The input of all benchmarks: a folder of Arrow files, and what must come out of it.

Micro-batch ``b`` consists of the files ``b``-``p`` for each partition ``p``, so that every competitor
works on the same records in the same batches.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.timing import Outcome

PARTITIONS = 2
ROWS_PER_ARROW_BATCH = 10_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])

Pair = tuple[str, str]


def file_of(folder: Path, batch: int, partition: int) -> Path:
    """Return the path of the file with one partition's records of one micro-batch."""
    return folder / f"{batch:06d}-{partition}.arrow"


def write_batches(folder: Path, batches: Iterable[list[Pair]]) -> Path:
    """Write micro-batches of (key, value) pairs, each divided evenly over the partitions."""
    folder.mkdir(parents=True)
    for number, pairs in enumerate(batches):
        for partition in range(PARTITIONS):
            _write_file(file_of(folder, number, partition), pairs[partition::PARTITIONS])
    return folder


def _write_file(path: Path, pairs: list[Pair]) -> None:
    table = pa.table(
        [pa.array([key for key, _ in pairs]), pa.array([value for _, value in pairs])], schema=SCHEMA
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table, max_chunksize=ROWS_PER_ARROW_BATCH)


def batch_count(folder: Path) -> int:
    """Return how many micro-batches a folder holds."""
    return sum(1 for _ in folder.glob("*.arrow")) // PARTITIONS


def read_file(path: Path | str) -> Iterator[Any]:
    """Read a file as Arrow record batches, without copying it."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def read_pairs(folder: Path, batches: int | None = None) -> Iterator[list[Pair]]:
    """Read a folder as lists of pairs, one list for each file, in the order of the micro-batches."""
    for number in range(batch_count(folder) if batches is None else batches):
        for partition in range(PARTITIONS):
            pairs: list[Pair] = []
            for batch in read_file(file_of(folder, number, partition)):
                pairs.extend(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
            yield pairs


def outcome_of(rows: Iterable[tuple[Any, ...]]) -> Outcome:
    """Digest rows, whatever their order.

    >>> outcome_of([("a", 1), ("b", 2)]) == outcome_of([("b", 2), ("a", 1)])
    True
    """
    count = digest = 0
    for row in rows:
        count += 1
        digest += zlib.crc32("\0".join(map(str, row)).encode())
    return Outcome(count, digest)


def last_counts(rows: Iterable[tuple[str, int]]) -> Outcome:
    """Digest running counts: of each key the highest, which is its last."""
    highest: dict[str, int] = {}
    for key, count in rows:
        if count > highest.get(key, 0):
            highest[key] = count
    return outcome_of(highest.items())


def expected_counts(folder: Path) -> Outcome:
    """Count keys with a plain loop."""
    counts: Counter[str] = Counter()
    for pairs in read_pairs(folder):
        counts.update(key for key, _ in pairs)
    return outcome_of(counts.items())


def expected_map(folder: Path, function: Callable[[str], str | None]) -> Outcome:
    """Apply a function to each value with a plain loop; None drops the record."""

    def rows() -> Iterator[tuple[str, str]]:
        for pairs in read_pairs(folder):
            for key, value in pairs:
                result = function(value)
                if result is not None:
                    yield key, result

    return outcome_of(rows())
