"""How long a job takes to recover, by where its copy is: Fig. 4 of Iijima et al., with real processes.

Server 1 runs the job and is lost; server 2 has the copy. The job is redeployed to server 2, or to server 3
over a link of 100 or 10 Mbit/s. Before the loss 20 MB have come that are in the copy and not processed.
Measured is the time from the kill until the redeployed job has processed them, Spark's start included.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.halves import HalfFailedError
from benchmarks.network import Network
from benchmarks.recovery_case import Case
from benchmarks.sizes import Sizes
from benchmarks.table import Row

DATA = 20_000_000
CASES: tuple[tuple[str, str, float | None], ...] = (
    ("same server", "s2", None),
    ("100 Mbit/s", "s3", 100.0),
    ("10 Mbit/s", "s3", 10.0),
)
_ROUNDS = 3
_SECONDS = 600.0
_NOTHING = 0.05
"""The share of the data that the daemons' own talk may amount to."""


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Recover in each of the cases, several times in turn."""
    data = DATA // 10 if sizes.quick else DATA
    found: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in CASES}
    for turn in range(1 if sizes.quick else _ROUNDS):
        for name, redeploy, megabits in CASES:
            with Network(3) as network:
                if megabits is not None:
                    network.limit(3, megabits)
                place = work / f"{turn}-{redeploy}-{megabits or 0:g}"
                place.mkdir()
                found[name].append(_recover(network, place, redeploy, data))
    return [row for name, *_ in CASES for row in _rows(name, found, data)]


def _recover(network: Network, work: Path, redeploy: str, data: int) -> dict[str, Any]:
    servers = {f"s{number}": number for number in (1, 2, 3)}
    case = Case(
        str(work),
        network.address(),
        {name: network.namespace(number) for name, number in servers.items()},
        {name: network.address(number) for name, number in servers.items()},
        redeploy,
        data,
    )
    command = [sys.executable, "-m", "benchmarks.recovery_case", json.dumps(asdict(case))]
    done = subprocess.run(
        ["ip", "netns", "exec", network.namespace(), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise HalfFailedError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {redeploy}: {result}", file=sys.stderr, flush=True)
    return result


def _rows(name: str, found: dict[str, list[dict[str, Any]]], data: int) -> list[Row]:
    moved = tuple(run["moved"] / 1e6 for run in found[name])
    share = median(moved) / (data / 1e6)
    local = name == "same server"
    return [
        _time(name, found, "restored_after", "until the data is there", "while Spark starts"),
        _time(name, found, "seconds", "until all is processed", "Spark's start included"),
        _time(
            name,
            found,
            "without_spark",
            "until all is processed, if Spark ran",
            "computed: until the data is there, and from when Spark is there too until all is processed",
        ),
        Row(
            benchmark=f"recovery by place, {name}, moved over the link",
            other_name="the job's data",
            unit="MB",
            ours=median(moved),
            other=data / 1e6,
            ratio=share,
            target=f"at most {_NOTHING:g}" if local else "",
            met=share <= _NOTHING if local else None,
            note="counted by the interface, with all that daemons say to each other",
            ours_runs=moved,
        ),
    ]


def _time(name: str, found: dict[str, list[dict[str, Any]]], figure: str, what: str, note: str) -> Row:
    runs = tuple(run[figure] for run in found[name])
    same = median(run[figure] for run in found["same server"])
    local = name == "same server"
    return Row(
        benchmark=f"recovery by place, {name}, {what}",
        other_name="" if local else "same server",
        unit="s",
        ours=median(runs),
        other=None if local else same,
        ratio=None if local else median(runs) / same,
        target="",
        met=None,
        note=note,
        ours_runs=runs,
    )
