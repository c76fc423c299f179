"""One of several processes that commit the same batches to a sink: ``committing.py KIND PLACE PLAN START``.

The plan has the receipts of a batch a line, and grows. What was committed is printed by its number. Run by
``test_shared_commits.py``, which stops and kills it anywhere.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.connect.database_sink import DatabaseSink
from penstock.connect.file_sink import FileSink
from penstock.connect.log_connectors import LogSink
from penstock.graph.connector_api import Sink


def sink_of(kind: str, place: Path) -> Sink:
    """Return the sink that all processes of a test commit to."""
    if kind == "log":
        return LogSink("out", root=place, partitions=2)
    if kind == "file":
        return FileSink(place / "out", "json")
    return DatabaseSink(
        lambda: sqlite3.connect(place / "out.db", timeout=60),
        "INSERT INTO results VALUES (?, ?, ?)",
        folder=place / "staged",
    )


def plan_of(path: Path, start: int) -> Iterator[tuple[int, list[Any]]]:
    """Return the batches from one on, those that are yet to come included."""
    batch = 0
    with path.open() as plan:
        while True:
            here = plan.tell()
            line = plan.readline()
            if not line.endswith("\n"):
                plan.seek(here)
                time.sleep(0.001)
                continue
            if batch >= start:
                yield batch, json.loads(line)
            batch += 1


def main() -> None:
    """Commit until killed."""
    kind, place, plan, start = sys.argv[1:]
    sink = sink_of(kind, Path(place))
    for batch, receipts in plan_of(Path(plan), int(start)):
        sink.commit(batch, receipts)
        print(batch, flush=True)


if __name__ == "__main__":
    main()
