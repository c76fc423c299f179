"""Runs the benchmarks: ``python -m benchmarks [--only NAME] [--quick]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    agreement_cost,
    backup_location,
    control_plane,
    driver_memory,
    durability,
    failover,
    guarantees,
    idle_cluster,
    instances,
    k_safety,
    k_safety_throughput,
    keyed_count,
    machine,
    per_record,
    placement,
    recovery_by_place,
    scheduling,
    small_backups,
    small_batch,
    sql_job,
    start,
    state_files,
    state_growth,
    windowed_count,
)
from benchmarks.halves import HalfFailedError
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.table import Row, failed, markdown, merged, write

BENCHMARKS: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "per_record": per_record.run,
    "keyed_count": keyed_count.run,
    "state_growth": state_growth.run,
    "state_files": state_files.run,
    "driver_memory": driver_memory.run,
    "small_batch": small_batch.run,
    "instances": instances.run,
    "guarantees": guarantees.run,
    "durability": durability.run,
    "sql_job": sql_job.run,
    "windowed_count": windowed_count.run,
    "start": start.run,
    "idle_cluster": idle_cluster.run,
    "control_plane": control_plane.run,
    "failover": failover.run,
    "placement": placement.run,
    "backup_location": backup_location.run,
    "scheduling": scheduling.run,
    "recovery_by_place": recovery_by_place.run,
    "small_backups": small_backups.run,
    "k_safety": k_safety.run,
    "k_safety_throughput": k_safety_throughput.run,
    "agreement_cost": agreement_cost.run,
}


def main() -> int:
    """Run what was asked for, write the table, and say by the exit code whether every target was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small inputs, to see that all of it works")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    facts = machine.facts()

    rows: list[Row] = []
    for name in options.only or BENCHMARKS:
        started = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as work:
            try:
                rows += BENCHMARKS[name](sizes, Path(work))
            except HalfFailedError as failure:
                print(failure, file=sys.stderr)
                rows.append(failed(name, str(failure).splitlines()[-1]))
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    text = markdown(rows, facts, quick=sizes.quick)
    print(text)
    folder = Path(__file__).parent
    if sizes.quick:
        print("A quick run: results.md is left as it is.", file=sys.stderr)
    else:
        write(folder, merged(folder, rows, options.only) if options.only else rows, facts, quick=False)
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
