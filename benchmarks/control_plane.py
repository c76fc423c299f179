"""The control plane of up to 1,000 nodes and 5,000 busy jobs, beside that of an earlier revision.

Each size is measured in a process of its own (:mod:`benchmarks.control_plane_case`). The figures of the
revision before are in ``results/control_plane_before.json``, measured by the same program; at the larger
size by a shorter run (three virtual seconds instead of six, one timing each), without list and metrics.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.sizes import Sizes
from benchmarks.table import Row

CLUSTERS = ((100, 500), (1000, 5000))
BEFORE = Path(__file__).parent / "results" / "control_plane_before.json"
OTHER = "all jobs followed"

LIMITS = {
    "leader, share of a core": 0.20,
    "supervisor, share of a core": 0.02,
    "list, seconds": 0.3,
}
"""What must hold at every size."""

NOTES = {
    "leader, share of a core": "processor time in virtual time; every job commits two batches a second",
    "supervisor, share of a core": "of a node with five jobs",
    "master cold start, round trips": "requests that are waited for, of which each may ask for 500 nodes",
    "quiet reconcile with replicas, seconds": "four members for each node, k=1, nothing to do",
}


def run(sizes: Sizes, work: Path) -> list[Row]:  # noqa: ARG001
    """Measure clusters of several sizes."""
    before = json.loads(BEFORE.read_text())
    rows: list[Row] = []
    for nodes, jobs in ((20, 100),) if sizes.quick else CLUSTERS:
        found = measured(nodes, jobs)
        rows += [
            _row(what, value, before.get(f"{nodes}x{jobs}", {}).get(what), nodes, jobs)
            for what, value in found.items()
        ]
    return rows


def measured(nodes: int, jobs: int) -> dict[str, float]:
    """Return the figures of one size, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.control_plane_case", str(nodes), str(jobs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _row(what: str, value: float, before: float | None, nodes: int, jobs: int) -> Row:
    most = LIMITS.get(what)
    unit = what.rpartition(", ")[2]
    return Row(
        benchmark=f"control plane, {nodes:,} nodes, {jobs:,} busy jobs: {what}",
        other_name=OTHER if before is not None else "",
        unit=unit,
        ours=value,
        other=before,
        ratio=value / before if before else None,
        target=f"at most {most:g}" if most is not None else "",
        met=value <= most if most is not None else None,
        note=NOTES.get(what, "") if jobs == CLUSTERS[-1][1] else "",
    )
