"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run of the benchmarks."""

    quick: bool
    rounds: int
    batches: int
    """Micro-batches of a measured run; the first is not counted."""
    batch_records: int
    """256-byte events in a micro-batch."""
    keyed_batch_records: int
    """Short keyed records in a micro-batch: half of what a batch takes from a backlog by default."""
    slow_rounds: int
    slow_batches: int
    slow_batch_records: int
    """For a competitor that would take minutes for the others' input."""
    small_batches: int
    small_batch_records: int
    memory_batches: int
    growth_load: int
    growth_touched: int
    growth_batches: int
    growth_held: tuple[int, int]
    sql_batches: int
    sql_file_records: int
    """Rows of a Parquet file of the SQL-only job."""


FULL = Sizes(
    quick=False,
    rounds=5,
    batches=4,
    batch_records=200_000,
    keyed_batch_records=500_000,
    slow_rounds=2,
    slow_batches=3,
    slow_batch_records=100_000,
    small_batches=80,
    small_batch_records=100,
    memory_batches=200,
    growth_load=100_000,
    growth_touched=10_000,
    growth_batches=20,
    growth_held=(100_000, 1_000_000),
    sql_batches=6,
    sql_file_records=500_000,
)

QUICK = Sizes(
    quick=True,
    rounds=1,
    batches=3,
    batch_records=5_000,
    keyed_batch_records=5_000,
    slow_rounds=1,
    slow_batches=2,
    slow_batch_records=2_000,
    small_batches=15,
    small_batch_records=100,
    memory_batches=30,
    growth_load=5_000,
    growth_touched=500,
    growth_batches=5,
    growth_held=(5_000, 50_000),
    sql_batches=3,
    sql_file_records=5_000,
)
