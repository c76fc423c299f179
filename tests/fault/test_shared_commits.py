"""Several processes commit the same batches at once, and are killed and stopped anywhere: each is in once."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from committing import sink_of
from counting_process import CountingProcess, check_alive

from penstock.connect.log_connectors import LogSink
from penstock.graph.connector_api import Sink, WriteContext
from penstock.log import Retention
from penstock.record import Record
from support.left_staged import left_staged
from support.waiting import eventually

HERE = Path(__file__).parent
TOGETHER = 3
BATCHES = 120
TASKS = 2
RECORDS = 5
LONGEST_STOP = 3.0

NOISE = """
import sys
from penstock.log import Log
from penstock.record import Record
log, number = Log.open(sys.argv[1]), 0
while True:
    log.append([Record(None, ["noise", number])], partition=number % 2)
    number += 1
"""

UPKEEP = """
import sys, time
from penstock.errors import LogError
from penstock.log import Log
log = Log.open(sys.argv[1])
while True:
    for work in (log.retain, log.compact):
        try:
            work()
        except LogError:
            pass  # a stopped process holds the gate
    time.sleep(0.01)
"""


class Committers:
    """Processes that commit the same plan; chance stops, continues and kills them."""

    def __init__(self, kind: str, place: Path, plan: Path, chance: random.Random) -> None:
        self._start: Callable[[int], CountingProcess] = lambda start: CountingProcess(
            str(HERE / "committing.py"), kind, str(place), str(plan), str(start)
        )
        self._chance = chance
        self._stopped: dict[int, threading.Timer] = {}
        self.kills = 0
        self.processes = [self._start(0) for _ in range(TOGETHER)]

    def disturb(self) -> None:
        which = self._chance.randrange(TOGETHER)
        process = self.processes[which]
        assert process.process.poll() is None, "a process failed by itself"
        waiting = self._stopped.pop(which, None)
        if waiting is not None:
            waiting.cancel()
            process.send(signal.SIGCONT)
        elif self._chance.random() < 0.7:
            process.send(signal.SIGSTOP)
            # If it was stopped while it deletes segments, nobody reads before it goes on, nor does the test.
            self._stopped[which] = threading.Timer(LONGEST_STOP, process.send, (signal.SIGCONT,))
            self._stopped[which].start()
        else:
            process.end()
            self.kills += 1
            # A process that comes back repeats what it had committed long ago.
            self.processes[which] = self._start(max(0, process.said - 30))

    def settle(self, last: int) -> None:
        """Let all of them come to the end of the plan."""
        self._go_on()
        eventually(
            "all of them have committed the last batch",
            lambda: all(process.said >= last for process in self.processes),
            meanwhile=lambda: check_alive(self.processes),
        )

    def end(self) -> None:
        self._go_on()
        for process in self.processes:
            process.end()

    def _go_on(self) -> None:
        for which, waiting in sorted(self._stopped.items()):
            waiting.cancel()
            self.processes[which].send(signal.SIGCONT)
        self._stopped = {}


def stage(sink: Sink, batch: int) -> list[Any]:
    """Stage a batch as Spark tasks would, under names that tell each record from all others."""
    receipts = []
    for task in range(TASKS):
        writer = sink.writer(WriteContext("job", "out", batch, f"{batch}-{task}"))
        writer.write([Record(str(i % 4), [batch, task, i]) for i in range(RECORDS)])
        receipts.append(writer.finish())
    return receipts


@contextmanager
def committing(kind: str, place: Path, chance: random.Random) -> Iterator[tuple[Sink, Committers, Path]]:
    sink, plan = sink_of(kind, place), place / "plan"
    sink.prepare()
    plan.touch()
    committers = Committers(kind, place, plan, chance)
    try:
        yield sink, committers, plan
    finally:
        committers.end()


def run(
    sink: Sink, committers: Committers, plan: Path, chance: random.Random, each: Callable[[], None]
) -> None:
    """Stage batch after batch while the committers work and are disturbed."""
    with plan.open("a") as lines:
        for batch in range(BATCHES):
            lines.write(json.dumps(stage(sink, batch)) + "\n")
            lines.flush()
            if chance.random() < 0.4:
                committers.disturb()
            time.sleep(chance.uniform(0.0, 0.04))
            each()
    committers.settle(BATCHES - 1)
    each()
    assert committers.kills, "nobody was killed"


EXPECTED = Counter(product(range(BATCHES), range(TASKS), range(RECORDS)))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_each_segment_is_in_a_log_once(tmp_path: Path, seed: int) -> None:
    """While others append, segments are merged, and what was read is deleted."""
    chance = random.Random(seed)
    with committing("log", tmp_path, chance) as (sink, committers, plan):
        assert isinstance(sink, LogSink)
        log = sink.log
        log.set_retention(Retention(consumed=True))
        log.note_reader("test", {0: 0, 1: 0})
        reached, found = [0, 0], [list[Any](), list[Any]()]

        def read_on() -> None:
            for partition in range(2):
                for chunk in log.read(partition, reached[partition]):
                    found[partition] += [tuple(record.value) for record in chunk]
                    reached[partition] += len(chunk)
            log.note_reader("test", dict(enumerate(reached)))

        others = [CountingProcess("-c", code, str(log.path)) for code in (NOISE, UPKEEP)]
        try:
            run(sink, committers, plan, chance, read_on)
            # Else the test would show less than it says.
            eventually("what was read is deleted", lambda: log.begin(0))
        finally:
            for other in others:
                other.end()
        read_on()
        assert Counter(value for values in found for value in values if value[0] != "noise") == EXPECTED
        for partition, values in enumerate(found):
            noise = [number for name, number, *_ in values if name == "noise"]
            assert noise == list(range(partition, partition + 2 * len(noise), 2))
        assert not [path for path in (log.path / "staging").iterdir() if path.name.startswith("stage-")]
        assert not log.stat(verify=True).damaged


def test_each_file_is_in_a_folder_once(tmp_path: Path) -> None:
    """While a reader takes the files away."""
    chance = random.Random(3)
    taken = tmp_path / "taken"
    taken.mkdir()
    with committing("file", tmp_path, chance) as (sink, committers, plan):

        def take() -> None:
            for path in sorted((tmp_path / "out").glob("*.jsonl")):
                target = taken / path.name
                assert not target.exists(), "a file came back"
                path.rename(target)

        run(sink, committers, plan, chance, take)
        take()
        assert left_staged(tmp_path / "out" / ".penstock-staging") == []
    lines = [json.loads(line) for path in taken.iterdir() for line in path.read_text().splitlines()]
    assert Counter(map(tuple, lines)) == EXPECTED


def test_each_row_is_in_a_database_once(tmp_path: Path) -> None:
    """While somebody reads it, who never sees a part of a batch."""
    chance = random.Random(4)
    with closing(sqlite3.connect(tmp_path / "out.db", timeout=60)) as database:
        # So that a process that is stopped in the middle of a transaction does not keep the test waiting.
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE results (batch INTEGER, task INTEGER, i INTEGER)")

        def look() -> None:
            counts = database.execute("SELECT count(*) FROM results GROUP BY batch").fetchall()
            assert all(count == (TASKS * RECORDS,) for count in counts), "in part, or twice"

        with committing("database", tmp_path, chance) as (sink, committers, plan):
            run(sink, committers, plan, chance, look)
        rows = database.execute("SELECT * FROM results").fetchall()
        noted = database.execute("SELECT batch FROM penstock_batches ORDER BY batch").fetchall()
    assert Counter(rows) == EXPECTED
    assert noted == [(batch,) for batch in range(BATCHES)]
    assert left_staged(tmp_path / "staged") == []
