"""How much jobs with replicas do, and how fast: the topologies of sections 5.3 and 5.4 of the paper.

The paper: Li, Soroudi, Tanuwidjaja, High Availability on a Distributed Real Time Processing System, 2015.
Stateless: records of 256 bytes with the moment of their making go through two tasks that pass them on, and
the moment comes out. Stateful: the 256 bytes are one of 26 words, which the task in the middle counts. Its
own figures are of 8 machines with 4 cores each; here all replicas share the cores of one machine.
"""

from __future__ import annotations

import string
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.failover import wait
from benchmarks.k_safety_cluster import KSafeCluster, k_safe_cluster
from benchmarks.k_safety_watching import Arrival, Producer, Tail
from benchmarks.sizes import Sizes
from benchmarks.table import Row
from penstock.log import Log, log_folder
from penstock.record import Record

WORDS = tuple((letter * 256) for letter in string.ascii_lowercase)
STATELESS = """
import penstock as ps

job = ps.Job("{name}", parallelism={parallelism})
source = job.source("in", ps.LogSource("{name}-in", max_records_per_batch={batch}))
source >> job.task("forward", lambda r: r) >> job.task("last", lambda r: r.value[0]) \\
    >> job.sink("out", ps.LogSink("{name}-out"))
"""
STATEFUL = """
import penstock as ps


class Words(ps.StatefulTask):
    # Counts each word, and passes on the moment of every record of it.
    def update(self, key, values, state):
        return (state or 0) + len(values), values


job = ps.Job("{name}", parallelism={parallelism})
source = job.source("in", ps.LogSource("{name}-in", max_records_per_batch={batch}))
source >> job.task("word", lambda r: (r.value[1], r.value[0])) >> job.task("count", Words()) \\
    >> job.sink("out", ps.LogSink("{name}-out"))
"""
PAPER = {
    ("stateless", 1): 65_000,
    ("stateless", 2): 100_000,
    ("stateful", 1): 25_000,
    ("stateful", 2): 40_000,
}
"""Records a second with k=1 by the number of its spouts, on the paper's cluster. The third of each, 135,000
and 55,000, is of a size that is not run here."""
PAPER_ONE_MACHINE = 20_000
"""Stateless, k=1, one spout, on one machine with 16 cores."""
_RATES = (1_000, 30_000)
"""Between which the rate of the measurement of latency lies: half of what the job can do."""


@dataclass(frozen=True)
class Amount:
    """How much is measured."""

    records: int
    batch: int
    seconds: float


FULL, QUICK = Amount(200_000, 20_000, 10.0), Amount(60_000, 10_000, 4.0)


@dataclass(frozen=True)
class Shape:
    """A job, how many replicas may be lost, and how wide each is."""

    kind: str
    k: int
    parallelism: int

    @property
    def name(self) -> str:
        """What the job is called."""
        return f"{self.kind}-{self.k}-{self.parallelism}"

    @property
    def code(self) -> str:
        """What it runs."""
        return STATELESS if self.kind == "stateless" else STATEFUL


SHAPES = tuple(
    Shape(kind, k, parallelism)
    for kind in ("stateless", "stateful")
    for parallelism in (1, 2)
    for k in (0, 1, 2)
)


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Run one job after the other on one cluster."""
    amount = QUICK if sizes.quick else FULL
    shapes = [shape for shape in SHAPES if not sizes.quick or shape.parallelism == 1]
    found: dict[Shape, tuple[float, float, float]] = {}
    with k_safe_cluster(work / "home", nodes=3) as cluster:
        for shape in shapes:
            found[shape] = _measure(shape, amount, cluster, work)
            print(f"  {shape}: {found[shape]}", file=sys.stderr, flush=True)
    return [row for shape in shapes for row in _rows(shape, found)]


def _measure(shape: Shape, amount: Amount, cluster: KSafeCluster, work: Path) -> tuple[float, float, float]:
    """Return records a second, and the median latency at what rate."""
    name = shape.name
    # As many input partitions as tasks read; one for the output, so that its order is that of batches.
    source = Log.create(log_folder(f"{name}-in", cluster.home), partitions=shape.parallelism)
    sink = Log.create(log_folder(f"{name}-out", cluster.home))
    file = work / f"{name.replace('-', '_')}.py"
    file.write_text(shape.code.format(name=name, parallelism=shape.parallelism, batch=amount.batch))
    with Tail(sink) as tail, ExitStack() as stack:
        options = ["--memory", "1g", "--cores", str(shape.parallelism)]
        cluster.penstock("submit", str(file), *options, *(["--k", str(shape.k)] if shape.k else []))
        stack.callback(_end, cluster, name)
        warm = amount.records // 4
        for part in _appended(warm, amount.batch):
            source.append(part)
        cluster.wait_safe(name, "k-safe" if shape.k else "")
        wait(lambda: tail.count >= warm, "the first records")
        rate = _drained(source, tail, amount)
        steady = min(max(rate / 2, _RATES[0]), _RATES[1])
        began = time.time()
        with Producer(source, steady, _record) as producer:
            wait(lambda: time.time() >= began + amount.seconds, "the end")
        wait(lambda: tail.count >= warm + amount.records + producer.count, "all has come out")
        latency = median(
            arrival.at - record.value
            for arrival in tail.arrivals
            for record in arrival.records
            # The first seconds are those of a job that comes from other work.
            if record.value > began + amount.seconds / 5
        )
    return rate, latency, steady


def _end(cluster: KSafeCluster, name: str) -> None:
    cluster.penstock("kill", name)
    wait(lambda: not cluster.places(name), f"{name} has ended")


def _record(number: int, now: float) -> Record:
    return Record(None, (now, WORDS[number % len(WORDS)]))


def _appended(count: int, step: int) -> Iterator[list[Record]]:
    for start in range(0, count, step):
        yield [_record(number, time.time()) for number in range(start, min(count, start + step))]


def _drained(source: Log, tail: Tail, amount: Amount) -> float:
    """Return records a second from the first output of a backlog to the last."""
    parts = list(_appended(amount.records, amount.batch // source.partitions))
    before = tail.count, len(tail.arrivals)
    for number, part in enumerate(parts):
        source.append(part, partition=number % source.partitions)
    wait(lambda: tail.count >= before[0] + amount.records, "the backlog has come out")
    arrivals: list[Arrival] = tail.arrivals[before[1] :]
    counted = sum(len(arrival.records) for arrival in arrivals[1:])
    return counted / (arrivals[-1].at - arrivals[0].at)


def _rows(shape: Shape, found: dict[Shape, tuple[float, float, float]]) -> list[Row]:
    rate, latency, steady = found[shape]
    alone = found[Shape(shape.kind, 0, shape.parallelism)]
    name = f"{shape.kind} records of 256 bytes, k={shape.k}, parallelism {shape.parallelism}"
    paper = PAPER[shape.kind, shape.parallelism] if shape.k == 1 else None
    note = ""
    if shape.k:
        note = f"{shape.k + 1} replicas share the cores of this machine, {rate / alone[0]:.2f} of k=0"
    if (shape.kind, shape.k, shape.parallelism) == ("stateless", 1, 1):
        note += f"; on one machine with 16 cores the paper had {PAPER_ONE_MACHINE:,}"
    return [
        Row(
            benchmark=f"{name}: throughput",
            other_name="the paper, on 8 machines" if paper else "k=0" if shape.k else "",
            unit="records/s",
            ours=rate,
            other=paper or (alone[0] if shape.k else None),
            ratio=rate / (paper or alone[0]) if shape.k else None,
            target="",
            met=None,
            note=note,
        ),
        Row(
            benchmark=f"{name}: latency in the middle",
            other_name="k=0" if shape.k else "",
            unit="s",
            ours=latency,
            other=alone[1] if shape.k else None,
            ratio=latency / alone[1] if shape.k else None,
            target="",
            met=None,
            note=f"at {steady:,.0f} records a second",
        ),
    ]
