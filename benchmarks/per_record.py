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
_STORED = "256-byte events; both store their results exactly once, ours in a log, the other as Parquet."
_DROPPED = "The same with results thrown away: ours in the worker, the other in the JVM, where it must end."


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
            for store in (True, False):
                runs = [partial(_measure, half, folder, steps, store) for half in halves]
                ours, other = alternate(sizes.rounds, *runs)
                by_hand = "mapInArrow by hand" if steps == 1 else "mapInArrow, five steps in one function"
                rows.append(
                    compare(
                        f"per record, {name}, {'stored' if store else 'dropped'}",
                        f"{by_hand}, to {'Parquet' if store else 'noop'}",
                        "records/s",
                        Comparison(ours, other),
                        at_least=AT_LEAST,
                        note=_STORED if store else _DROPPED,
                    )
                )
    return rows


def _measure(half: Half, folder: Path, steps: int, store: bool) -> float:
    return throughput(half(folder=str(folder), steps=steps, store=store, check=False))
