"""One job over one loss of nodes: what a user sees of it, and what it costs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.failover import wait
from benchmarks.k_safety_cluster import KSafeCluster, k_safe_cluster
from benchmarks.k_safety_watching import (
    Arrival,
    Background,
    Meter,
    Producer,
    Tail,
    faults,
    intervals,
    percentiles,
)
from penstock.log import Log, log_folder
from penstock.record import Record

NAME = "steady"
RATE = 500
KEYS = 50
JOB = """
import penstock as ps


class Tally(ps.StatefulTask):
    # Number n of a key is emitted once, whatever batch it is in, with what it was made of.
    def update(self, key, values, state):
        seen = state or 0
        return seen + len(values), [(key, (seen + n, *value)) for n, value in enumerate(values, start=1)]


job = ps.Job("steady", parallelism=1, interval="500ms")
source = job.source("in", ps.LogSource("steady-in"))
by_key = job.task("by_key", lambda r: (r.value[0] % {keys}, r.value))
source >> by_key >> job.task("tally", Tally()) >> job.sink("out", ps.LogSink("steady-out"))
"""


@dataclass(frozen=True)
class Case:
    """What is run, and what of it is killed."""

    name: str
    options: tuple[str, ...]
    safe: str
    """How its safety is told when all is well, or how that begins."""
    k: int = 0
    killed: int = 1
    nodes: int = 3

    @property
    def seamless(self) -> bool:
        """Whether the loss shall not be noticed: a backup that holds its output waits for a batch first."""
        return self.k > 0 and "--publisher" not in self.options

    @property
    def members(self) -> int:
        """How many replicas there are, one that waits included."""
        return self.k + 1 + ("--warm-standby" in self.options)


CASES = (
    Case("k=0, cold", (), ""),
    Case("k=0, warm standby", ("--warm-standby",), "standby ready"),
    Case("k=1", ("--k", "1"), "k-safe", k=1),
    Case("k=1, backups hold their output", ("--k", "1", "--publisher", "primary"), "k-safe", k=1),
    Case("k=2", ("--k", "2"), "k-safe", k=2, nodes=4),
    Case("k=2, two nodes at once", ("--k", "2"), "k-safe", k=2, killed=2, nodes=5),
)


@dataclass(frozen=True)
class Spans:
    """How long input comes before anything is measured, and how long it is measured."""

    warm_up: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """What was measured of a case. Moments are seconds from the kill on."""

    case: str
    interval: float
    """Between committed batches before the kill, in the middle."""
    longest_before: float
    gap: float
    """The longest time without a new committed batch from the kill on, as long as input came."""
    before: tuple[float, float]
    """Latency of records that came out before the kill: the middle one, and what 99 of 100 are below."""
    after: tuple[float, float]
    """The same of records that were made after the kill."""
    records: int
    missing: int
    doubled: int
    misnumbered: int
    """Keys whose numbering has a gap or a double."""
    safe_after: float
    cpu: float
    """Cores in use before the kill, of all processes of the cluster."""
    written: float
    """Bytes a second to files, likewise."""
    network: float
    """Bytes a second between processes over the network, likewise."""
    total_cpu: float
    """Seconds of processor time from the beginning of what is measured until all is well again."""
    total_written: float
    curve: tuple[tuple[float, float], ...]
    """Latency over time: when a batch became visible, and how old its oldest record was."""


class Recovery(Background):
    """Notes when all is well again."""

    def __init__(self, case: Case, cluster: KSafeCluster, lost: list[str]) -> None:
        super().__init__()
        self.at = 0.0
        self._case, self._cluster, self._lost = case, cluster, frozenset(lost)

    def _work(self) -> None:
        while not self.at and not self._stop.wait(0.2):
            # Until the master has seen the loss it says what was so before.
            places = self._cluster.places(NAME).values()
            there = len(places) == self._case.members and self._lost.isdisjoint(places)
            if there and self._cluster.is_safe(NAME, self._case.safe):
                self.at = time.time()


def run_case(case: Case, spans: Spans, work: Path) -> Found:
    """Bring a cluster up, run the job on it, lose its busiest node, and see what comes out."""
    with k_safe_cluster(work / "home", case.nodes) as cluster, ExitStack() as stack:
        source = Log.create(log_folder(f"{NAME}-in", cluster.home))
        sink = Log.create(log_folder(f"{NAME}-out", cluster.home))
        file = work / f"{NAME}.py"
        file.write_text(JOB.format(keys=KEYS))
        producer = Producer(source, RATE, lambda number, now: Record(None, (number, now)))
        tail, meter = Tail(sink), Meter(cluster.folder)
        for watcher in (tail, meter, producer):
            stack.enter_context(watcher)
        cluster.penstock("submit", str(file), "--memory", "1g", "--cores", "1", *case.options)
        cluster.wait_safe(NAME, case.safe)
        wait(lambda: tail.count > producer.count - 5 * RATE, "output keeps up with input")
        began = time.time() + spans.warm_up
        wait(lambda: time.time() >= began, "warm")
        return _lose(case, spans, cluster, producer, tail, meter, began)


def _lose(
    case: Case,
    spans: Spans,
    cluster: KSafeCluster,
    producer: Producer,
    tail: Tail,
    meter: Meter,
    began: float,
) -> Found:
    wait(lambda: time.time() >= began + spans.seconds / 2, "the middle")
    nodes = cluster.busiest(NAME, case.killed)
    killed = time.time()
    cluster.lose(nodes)
    print(f"  {case.name}: killed {nodes} of {cluster.places(NAME)}", file=sys.stderr, flush=True)
    with Recovery(case, cluster, nodes) as recovery:
        ended = began + spans.seconds
        wait(lambda: time.time() >= ended, "the end")
        producer.stop()
        wait(lambda: tail.count >= producer.count, "all has come out")
        cluster.wait_safe(NAME, case.safe)
        wait(lambda: recovery.at, "all is well again")
    meter.sample()
    moments = [arrival.at for arrival in tail.arrivals]
    usual = intervals([moment for moment in moments if began <= moment <= killed], began, killed)
    missing, doubled, misnumbered = check(tail.arrivals, producer.count)
    steady, total = meter.between(began, killed), meter.between(began, time.time())
    return Found(
        case.name,
        interval=median(usual),
        longest_before=max(usual),
        gap=max(intervals(moments, killed, ended)),
        before=percentiles(latencies(tail.arrivals, began, killed, by_arrival=True)),
        after=percentiles(latencies(tail.arrivals, killed, ended)),
        records=producer.count,
        missing=missing,
        doubled=doubled,
        misnumbered=misnumbered,
        safe_after=recovery.at - killed,
        cpu=steady.cpu,
        written=steady.written,
        network=steady.network,
        total_cpu=total.cpu * total.at,
        total_written=total.written * total.at,
        curve=curve(tail.arrivals, began, killed),
    )


def latencies(
    arrivals: Sequence[Arrival], start: float, end: float, *, by_arrival: bool = False
) -> list[float]:
    """Return how long records took that were made in a span, or came out in it."""
    return [
        arrival.at - record.value[2]
        for arrival in arrivals
        for record in arrival.records
        if start <= (arrival.at if by_arrival else record.value[2]) < end
    ]


def curve(arrivals: Sequence[Arrival], start: float, killed: float) -> tuple[tuple[float, float], ...]:
    """Return for each batch when it became visible and how old its oldest record was."""
    return tuple(
        (arrival.at - killed, arrival.at - min(record.value[2] for record in arrival.records))
        for arrival in arrivals
        if arrival.at >= start
    )


def check(arrivals: Sequence[Arrival], count: int) -> tuple[int, int, int]:
    """Return how many records are missing, how many doubled, and of how many keys the numbering is wrong."""
    records = [record for arrival in arrivals for record in arrival.records]
    visits: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for record in records:
        visits[record.key].append(record.value[0])
    wrong = sum(sorted(found) != list(range(1, len(found) + 1)) for found in visits.values())
    return *faults(Counter(record.value[1] for record in records), count), wrong
