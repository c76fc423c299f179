"""The same running count in Bytewax, with one worker and no recovery store, which favours it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.arrow_files import PARTITIONS, batch_count, file_of, last_counts, read_file
from benchmarks.timing import Batch, Measured


class ArrowFolderPartition(StatelessSourcePartition[tuple[str, None]]):
    """Reads a folder; what is handed on at a time is one Arrow record batch."""

    def __init__(self, folder: Path, started: list[tuple[float, int]]) -> None:
        self._arrow = self._read(folder, started)

    @staticmethod
    def _read(folder: Path, started: list[tuple[float, int]]) -> Iterable[Any]:
        for number in range(batch_count(folder)):
            started.append((time.time(), 0))
            for partition in range(PARTITIONS):
                for batch in read_file(file_of(folder, number, partition)):
                    started[-1] = (started[-1][0], started[-1][1] + batch.num_rows)
                    yield batch

    def next_batch(self) -> list[tuple[str, None]]:
        """Return the next keys, as pairs; the values are not needed to count."""
        return [(key, None) for key in next(self._arrow).column(0).to_pylist()]  # type: ignore[call-overload]


class ArrowFolder(DynamicSource[tuple[str, None]]):
    """The source of the one worker."""

    def __init__(self, folder: Path, started: list[tuple[float, int]]) -> None:
        self.folder = folder
        self.started = started

    def build(self, step_id: str, worker_index: int, worker_count: int) -> ArrowFolderPartition:  # noqa: ARG002
        """Open the folder."""
        return ArrowFolderPartition(self.folder, self.started)


class RunningCount(StatefulBatchLogic[None, int, int]):
    """Counts the items of each key; emits the new count once for each batch of items."""

    def __init__(self, resumed: int | None) -> None:
        self.count = resumed or 0

    def on_batch(self, values: list[None]) -> tuple[Iterable[int], bool]:
        """Add the items of one key."""
        self.count += len(values)
        return (self.count,), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        """Return the state."""
        return self.count


class CollectPartition(StatelessSinkPartition[tuple[str, int]]):
    """Keeps or drops what arrives."""

    def __init__(self, collected: list[tuple[str, int]] | None) -> None:
        self.collected = collected

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        """Take items."""
        if self.collected is not None:
            self.collected.extend(items)


class Collect(DynamicSink[tuple[str, int]]):
    """The sink of the one worker."""

    def __init__(self, collected: list[tuple[str, int]] | None) -> None:
        self.collected = collected

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CollectPartition:  # noqa: ARG002
        """Open the sink."""
        return CollectPartition(self.collected)


def count_one(count: int | None, _: None) -> tuple[int, int]:
    """Add one item, and emit the new count, as Bytewax's own documentation does it."""
    total = (count or 0) + 1
    return total, total


def run(folder: str, operator: str, check: bool) -> Measured:
    """Run the dataflow over a folder with ``stateful_map`` or with the lower-level ``stateful_batch``."""
    collected: list[tuple[str, int]] | None = [] if check else None
    started: list[tuple[float, int]] = []
    flow = Dataflow("running_count")
    keyed = op.input("folder", flow, ArrowFolder(Path(folder), started))
    if operator == "stateful_map":
        counts = op.stateful_map("count", keyed, count_one)
    else:
        counts = op.stateful_batch("count", keyed, RunningCount)
    op.output("out", counts, Collect(collected))
    run_main(flow)
    ends = [start for start, _ in started[1:]] + [time.time()]
    batches = tuple(Batch(start, end, n) for (start, n), end in zip(started, ends, strict=True))
    return Measured(batches, last_counts(collected) if collected is not None else None)
