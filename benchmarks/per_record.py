"""(a) Python work on each record: our tasks against ``mapInArrow`` written by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.arrow_files import expected_map, write_batches
from benchmarks.events import event_batches, five_steps, one_step
from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import throughput

TARGETS = ("benchmarks.ours:per_record", "benchmarks.hand.per_record:run")
AT_LEAST = 0.9


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure one task, then five in a row."""
    small = write_batches(work / "small", event_batches(3, 2_000))
    folder = write_batches(work / "events", event_batches(sizes.batches, sizes.batch_records))
    rows = []
    with open_halves(TARGETS, work) as halves:
        for steps, function, name in (
            (1, one_step, "one task"),
            (5, five_steps, "five tasks in a row"),
        ):
            for half in halves:
                warm_up(half, expected_map(small, function), folder=str(small), steps=steps)
            runs = [partial(_measure, half, folder, steps) for half in halves]
            ours, other = alternate(sizes.rounds, *runs)
            rows.append(
                compare(
                    f"per record, {name}",
                    "mapInArrow by hand" if steps == 1 else "one mapInArrow function with all five steps",
                    "records/s",
                    Comparison(ours, other),
                    at_least=AT_LEAST,
                    note="256-byte events; " + (function.__doc__ or "").split("\n")[0],
                )
            )
    return rows


def _measure(half: Half, folder: Path, steps: int) -> float:
    return throughput(half(folder=str(folder), steps=steps, check=False))
