"""What the loss of machines does to a job's output, by how safe the job is, and what that safety costs.

A cluster of real processes on this machine; a keyed count with 60 s of input at a steady rate. In the middle
every process of the busiest node is killed: the one whose replica has lately made the output that counts.
The gap is the longest time without a new committed batch from the kill on.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.k_safety_case import CASES, RATE, Case, Found, Spans, run_case
from benchmarks.k_safety_plot import draw
from benchmarks.sizes import Sizes
from benchmarks.table import Row

RESULTS = Path(__file__).parent / "results" / "k_safety.json"
MOST_INTERVALS = 2.0
FULL, QUICK = Spans(20.0, 60.0), Spans(5.0, 15.0)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Run all cases, one after the other, on a cluster of its own each."""
    found: list[Found] = []
    for number, case in enumerate(CASES):
        place = work / str(number)
        place.mkdir()
        found.append(run_case(case, QUICK if sizes.quick else FULL, place))
        print(f"  {told(found[-1])}", file=sys.stderr, flush=True)
    if sizes.quick:
        draw(found, work / "latency.svg")
    else:
        RESULTS.write_text(json.dumps([asdict(one) for one in found]) + "\n")
        draw(found)
    return [row for case, one in zip(CASES, found, strict=True) for row in _rows(case, one, found[0])]


def read_found() -> list[Found]:
    """Read what was measured last."""
    return [
        Found(
            **{
                **fields,
                "before": tuple(fields["before"]),
                "after": tuple(fields["after"]),
                "curve": tuple((at, age) for at, age in fields["curve"]),
            }
        )
        for fields in json.loads(RESULTS.read_text())
    ]


def told(found: Found) -> str:
    """Return all figures of a case in a line, without its curve."""
    return ", ".join(f"{name}={value}" for name, value in asdict(found).items() if name != "curve")


def _rows(case: Case, found: Found, alone: Found) -> list[Row]:
    wrong = found.missing + found.doubled + found.misnumbered
    ratio = found.gap / found.interval
    bound = f"at most {MOST_INTERVALS:g}" if case.seamless else ""
    name = f"k-safety, {case.name}"
    lost = "the node" if case.killed == 1 else f"{case.killed} nodes"
    return [
        Row(
            benchmark=f"{name}: longest time without output after {lost} died",
            other_name="between batches before",
            unit="s",
            ours=found.gap,
            other=found.interval,
            ratio=ratio,
            target=bound,
            met=ratio <= MOST_INTERVALS if case.seamless else None,
            note=f"{RATE} records a second; the longest before was {found.longest_before:.3f} s",
        ),
        Row(
            benchmark=f"{name}: records missing or doubled, keys misnumbered",
            other_name="",
            unit=f"of {found.records:,}",
            ours=float(wrong),
            other=None,
            ratio=None,
            target="0",
            met=wrong == 0,
        ),
        _against(f"{name}: latency in the middle, after", "before", "s", found.after[0], found.before[0]),
        _against(f"{name}: latency, 99 of 100, after", "before", "s", found.after[1], found.before[1]),
        Row(f"{name}: until all is well again", "", "s", found.safe_after, None, None, "", None),
        _against(f"{name}: processors while all is well", alone.case, "cores", found.cpu, alone.cpu),
        _against(
            f"{name}: written while all is well", alone.case, "kB/s", found.written / 1e3, alone.written / 1e3
        ),
        _against(
            f"{name}: over the network while all is well",
            alone.case,
            "kB/s",
            found.network / 1e3,
            alone.network / 1e3,
        ),
    ]


def _against(name: str, other_name: str, unit: str, ours: float, other: float) -> Row:
    return Row(name, other_name, unit, ours, other, ours / other if other else None, "", None)
