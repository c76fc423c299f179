"""A process that asks one source: ``replicated_reader.py KIND PLACE``, with a question a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.connect.driver_connectors import MemorySource
from penstock.connect.file_source import FileSource
from penstock.connect.log_connectors import LogSource
from penstock.connect.rate_source import RateSource
from penstock.graph.connector_api import Rejected, Source

SOURCES: dict[str, Callable[[Path], Source]] = {
    "log": lambda place: LogSource("in", root=place, max_records_per_batch=7),
    "file": lambda place: FileSource(place / "in", partitions=3, max_files_per_batch=2),
    "json": lambda place: FileSource(place / "in", "json", key="k", partitions=2, max_files_per_batch=3),
    "rate": lambda place: RateSource(500, partitions=2, value=lambda i: i * i, key=lambda i: i % 3),
    "memory": lambda place: MemorySource(range(40), partitions=3, max_records_per_batch=7),
}


def read(source: Source, start: Any, end: Any) -> dict[str, Any]:
    """Return all that a replica learns of a range."""
    parts = []
    for split in source.splits(start, end):
        chunks = list(source.on_worker().read(split))
        rejected = [repr(chunk.pieces) for chunk in chunks if isinstance(chunk, Rejected)]
        records = [list(record) for chunk in chunks if isinstance(chunk, list) for record in chunk]
        parts.append([source.lane(split), records, rejected])
    return {"parts": parts, "lanes": list(source.lanes(end))}


def main() -> None:
    """Answer questions until there are no more."""
    kind, place = sys.argv[1:]
    source = SOURCES[kind](Path(place))
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        answer = read(source, *arguments) if question == "read" else getattr(source, question)(*arguments)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
