"""(b) A count by key in Python: ours against ``transformWithState`` and Bytewax, on the same input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.arrow_files import expected_counts, write_batches
from benchmarks.events import keyed_batches
from benchmarks.halves import Comparison, alternate, open_halves, warm_up
from benchmarks.keyed_profile import profile
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from benchmarks.timing import throughput

TARGETS = (
    "benchmarks.ours:keyed_count",
    "benchmarks.hand.keyed_count:run",
    "benchmarks.hand.bytewax_count:run",
)
AT_LEAST_STATE = {1_000: 3.0, 100_000: 15.0}
AT_LEAST_BYTEWAX = {1_000: None, 100_000: 1.0}


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure with few keys and with many."""
    small = write_batches(work / "small", keyed_batches(3, 2_000, keys=500))
    expected = expected_counts(small)
    rows = []
    with open_halves(TARGETS, work) as (ours, state, bytewax):
        for combined in (True, False):
            warm_up(ours, expected, folder=str(small), combined=combined)
        warm_up(state, expected, folder=str(small), batches=None)
        for operator in ("stateful_batch", "stateful_map"):
            warm_up(bytewax, expected, folder=str(small), operator=operator)
        for keys in (1_000, 100_000):
            batches = keyed_batches(sizes.batches, sizes.keyed_batch_records, keys)
            folder = str(write_batches(work / f"keys-{keys}", batches))
            part = keyed_batches(sizes.slow_batches, sizes.slow_batch_records, keys)
            less = str(write_batches(work / f"less-{keys}", part))

            def run_ours(folder: str = folder, combined: bool = True) -> float:
                return throughput(ours(folder=folder, check=False, combined=combined))

            def run_state(folder: str = less) -> float:
                return throughput(state(folder=folder, batches=None, check=False))

            def run_bytewax(operator: str, folder: str = folder) -> Callable[[], float]:
                return lambda: throughput(bytewax(folder=folder, operator=operator, check=False))

            def run_plain() -> float:
                return run_ours(combined=False)

            slow = alternate(sizes.slow_rounds, run_ours, run_plain, run_state)
            quick = alternate(
                sizes.rounds, run_ours, run_plain, run_bytewax("stateful_batch"), run_bytewax("stateful_map")
            )
            explained = profile(sizes.keyed_batch_records, keys)
            ours_slow, plain, state_figures = slow
            rows += _rows(
                keys,
                explained,
                Comparison(ours_slow, state_figures),
                Comparison(quick[0], quick[2]),
                Comparison(quick[0], quick[3]),
            )
            rows += _plain_rows(keys, Comparison(plain, state_figures), Comparison(quick[1], quick[2]))
    return rows


def _plain_rows(keys: int, against_state: Comparison, against_batch: Comparison) -> list[Row]:
    """Return the rows of a task of the user's own, whose values all go through the shuffle."""
    name = f"keyed update, {keys:,} keys"
    note = "A plain StatefulTask: ps.Count combines before the shuffle, and this one cannot."
    return [
        compare(name, "transformWithState", "records/s", against_state, note=note),
        compare(f"{name}, Bytewax", "Bytewax stateful_batch", "records/s", against_batch, note=note),
    ]


def _rows(
    keys: int, explained: str, against_state: Comparison, against_batch: Comparison, against_map: Comparison
) -> list[Row]:
    name = f"keyed count, {keys:,} keys"
    return [
        compare(
            name,
            "transformWithState",
            "records/s",
            against_state,
            at_least=AT_LEAST_STATE[keys],
            note=(
                "transformWithState (RocksDB, changelog) gets batches of 100,000 records of the same kind: "
                "its cost follows the keys, and the whole input would take it many minutes."
            ),
        ),
        compare(
            f"{name}, Bytewax",
            "Bytewax stateful_batch",
            "records/s",
            against_batch,
            at_least=AT_LEAST_BYTEWAX[keys],
            note=(
                "Bytewax runs one worker in one process and keeps no recovery store; ours runs on two "
                "cores and commits its state with every batch. stateful_batch is Bytewax's lowest-level "
                "operator and its fastest: it emits a key's count once for each batch of items. " + explained
            ),
        ),
        compare(
            f"{name}, Bytewax by item",
            "Bytewax stateful_map",
            "records/s",
            against_map,
            note="The form that Bytewax's documentation shows: it emits a count for every item.",
        ),
    ]
