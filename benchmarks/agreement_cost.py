"""What being one of several replicas costs a batch: agreeing on what it reads, and on whose output counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from uuid import uuid4

from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, Plan, ReplicaProgress

AT_MOST = 5.0
PARTITIONS = 8
BEFORE = 2_000
"""Batches that lie in the folder already: names are looked for among that many."""


@dataclass(frozen=True)
class Cost:
    """Of a batch."""

    milliseconds: float
    slowest: float
    """of a hundred, in milliseconds"""
    cpu: float
    """in milliseconds"""
    written: float
    """in bytes"""


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Measure a replica that is always first, one that is always second, and one that waits for a plan."""
    batches = 200 if sizes.quick else 2_000
    place = work / "agreed" / "0"
    first, second = AgreementFolder(place), AgreementFolder(place)
    first.create(Charter(0, {}))
    for batch in range(BEFORE):
        _lead(first, batch)
    leading = _measure(range(BEFORE, BEFORE + batches), lambda batch: _lead(first, batch))
    following = _measure(range(BEFORE, BEFORE + batches), lambda batch: _follow(second, batch))
    waiting = _measure(range(batches), lambda _: second.plan(BEFORE + batches))
    first.forget(BEFORE)
    forgetting = _measure(range(BEFORE + 64, BEFORE + batches, 64), first.forget)
    return [
        _row("plan, commit, mark and stand of the one that is first", leading, AT_MOST),
        _row("follow, accept and stand of one that is second", following, AT_MOST),
        _row("asking once for a plan that is not there", waiting),
        _row("forgetting 64 batches, each 64 batches", forgetting),
    ]


def _lead(agreement: AgreementFolder, batch: int) -> None:
    agreement.plan(batch)
    agreement.propose(_plan(batch, "count"))
    agreement.see(batch)
    receipts = {"out": [[f"{batch:012d}-{part}.segment", 4096] for part in range(PARTITIONS)]}
    end = dict(_plan(batch, "count").end)
    agreement.commit(Commit(batch, uuid4().hex, "count", 1, end, receipts, {"out": batch}, {}, time.time()))
    agreement.mark_published(batch)
    agreement.report_progress(ReplicaProgress("count", batch, time.time()))


def _follow(agreement: AgreementFolder, batch: int) -> None:
    assert agreement.plan(batch) is not None
    agreement.see(batch)
    assert agreement.committed(batch) is not None
    assert agreement.is_published(batch)
    agreement.report_progress(ReplicaProgress("count~1", batch, time.time()))


def _plan(batch: int, name: str) -> Plan:
    positions = {str(partition): batch * 1_000 for partition in range(PARTITIONS)}
    end = {"batch": batch + 1, "sources": {"orders": positions}, "now": time.time(), "flush": False}
    return Plan(batch, end, name, time.time())


def _measure(batches: range, work: Callable[[int], object]) -> Cost:
    seconds = []
    written, cpu = _written(), time.process_time()
    for batch in batches:
        started = time.perf_counter()
        work(batch)
        seconds.append(time.perf_counter() - started)
    cpu, written = time.process_time() - cpu, _written() - written
    slowest = quantiles(seconds, n=100)[-1] if len(seconds) > 1 else seconds[0]
    return Cost(median(seconds) * 1e3, slowest * 1e3, cpu / len(seconds) * 1e3, written / len(seconds))


def _written() -> int:
    """Return how many bytes this process has given to the system to write."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("wchar"))


def _row(what: str, cost: Cost, at_most: float | None = None) -> Row:
    return Row(
        benchmark=f"agreement: {what}",
        other_name="",
        unit="ms a batch",
        ours=cost.milliseconds,
        other=None,
        ratio=None,
        target="" if at_most is None else f"at most {at_most:g} ms",
        met=None if at_most is None else cost.milliseconds <= at_most,
        note=(
            f"median; the slowest of a hundred takes {cost.slowest:.2f} ms; CPU {cost.cpu:.3f} ms and "
            f"{cost.written:.0f} bytes written, on average; local disk, {PARTITIONS} partitions"
        ),
    )
