"""What a cluster without a job costs: memory and processor of a master and of a supervisor, over a minute.

SpeedStream (V.A) reports 110 MB for Storm's Nimbus and 194 MB for its supervisors, with no job running.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

import psutil

from benchmarks.sizes import Sizes
from benchmarks.table import Row

MEGABYTE = 1 << 20
LIMITS = {"master": (80.0, 1.0), "supervisor": (50.0, 1.0)}
"""Megabytes of resident memory, and percent of one core."""
STORM = {"master": 110.0, "supervisor": 194.0}
"""Megabytes of Storm's, as the paper reports them."""


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Start a cluster with nothing to do, wait until it has settled, and look at it for a minute."""
    seconds = 10.0 if sizes.quick else 60.0
    home = work / "home"
    environment = {**os.environ, "PENSTOCK_HOME": str(home)}
    penstock = [sys.executable, "-m", "penstock.cli.main"]
    up = [*penstock, "up", "--nodes", "3", "--masters", "2", "--zk", "3", "--detach"]
    subprocess.run(up, env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        daemons = json.loads((home / "cluster" / "up.json").read_text())["daemons"]
        time.sleep(10.0)  # The start itself is not idle.
        rows: list[Row] = []
        for kind, (most_memory, most_cpu) in LIMITS.items():
            folders = [Path(daemon["folder"]) for daemon in daemons if daemon["kind"] == kind]
            pids = [json.loads((folder / "process.json").read_text())["pid"] for folder in folders]
            memory, cpu = _figures([psutil.Process(pid) for pid in pids], seconds)
            rows.append(_row(kind, "resident memory", "MB", memory, most_memory, STORM[kind]))
            rows.append(_row(kind, "processor", "% of a core", cpu, most_cpu, None))
        return rows
    finally:
        subprocess.run([*penstock, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


def _row(kind: str, what: str, unit: str, found: float, most: float, storm: float | None) -> Row:
    return Row(
        benchmark=f"idle {kind}, {what}",
        other_name="Storm, as reported" if storm else "",
        unit=unit,
        ours=found,
        other=storm,
        ratio=found / storm if storm else None,
        target=f"at most {most:g} {unit}",
        met=found <= most,
    )


def _figures(processes: list[psutil.Process], seconds: float) -> tuple[float, float]:
    """Return the largest mean memory in megabytes and the largest share of a core in percent."""
    before = [sum(process.cpu_times()[:2]) for process in processes]
    samples: list[list[float]] = [[] for _ in processes]
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for number, process in enumerate(processes):
            samples[number].append(process.memory_info().rss / MEGABYTE)
        time.sleep(1.0)
    passed = time.monotonic() - began
    used = [sum(process.cpu_times()[:2]) - start for process, start in zip(processes, before, strict=True)]
    return max(mean(sample) for sample in samples), max(used) / passed * 100
