"""What dealing records out to instances costs, against handing them on where they are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.arrow_files import expected_map, write_batches
from benchmarks.events import event_batches, one_step
from benchmarks.halves import Comparison, Half, alternate, open_halves, warm_up
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import median_batch_seconds, throughput

TARGET = "benchmarks.ours:per_record"
INSTANCES = 2
_NOTE = "One task that looks at 256-byte events; {} instances get them in turn, through the shuffle."


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure throughput with large batches, and how long a small one takes."""
    check = write_batches(work / "check", event_batches(3, 2_000))
    large = write_batches(work / "large", event_batches(sizes.batches, sizes.batch_records))
    small = write_batches(work / "small", event_batches(sizes.small_batches, sizes.small_batch_records))
    with open_halves([TARGET], work) as (ours,):
        for parallelism in (None, INSTANCES):
            warm_up(ours, expected_map(check, one_step), folder=str(check), steps=1, parallelism=parallelism)
        chained, dealt = alternate(
            min(sizes.rounds, 3), *(partial(_throughput, ours, large, number) for number in (None, INSTANCES))
        )
        quick, slower = alternate(
            min(sizes.rounds, 3),
            *(partial(_batch, ours, small, number, sizes.small_batches // 4) for number in (None, INSTANCES)),
        )
    note = _NOTE.format(INSTANCES)
    return [
        compare("dealt out, large batches", "chained", "records/s", Comparison(dealt, chained), note=note),
        compare("dealt out, small batch", "chained", "s a batch", Comparison(slower, quick), note=note),
    ]


def _throughput(half: Half, folder: Path, parallelism: int | None) -> float:
    return throughput(half(folder=str(folder), steps=1, parallelism=parallelism, check=False))


def _batch(half: Half, folder: Path, parallelism: int | None, skip: int) -> float:
    measured = half(folder=str(folder), steps=1, parallelism=parallelism, check=False)
    return median_batch_seconds(measured, skip)
