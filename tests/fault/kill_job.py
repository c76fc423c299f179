"""The job that is killed: every number is counted by key, some go round a loop, some for ever.

It has keyed state, a loop, a side stream for what the loop discards, and sinks of two kinds.

Number i comes by ``tally`` once and then once more for each round that ``route`` sends it on. All that
reaches a sink is the same however the input is cut into batches.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import penstock as ps

ROUNDS = 3
KEYS = int(os.environ.get("KILL_KEYS", "1000"))
ENDLESS = int(os.environ.get("KILL_ENDLESS", "997"))
HOME = Path(os.environ.get("PENSTOCK_HOME", "."))


def rounds_of(number: int) -> int:
    """How often a number goes round; one in ``ENDLESS`` would never end."""
    return ROUNDS + 1 if number % ENDLESS == 0 else number % 3


class Tally(ps.StatefulTask):
    """Numbers the visits of each key: visit n of a key is emitted once, whatever batch it is in."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


class Route(ps.Task):
    """Sends a number on to the loop, or out."""

    outputs = ("again", "visits", "numbers")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        for record in inputs["in"]:
            visit, (number, done) = record.value
            outputs.emit(record.key, visit, port="visits")
            if done < rounds_of(number):
                outputs.emit(record.key, (number, done + 1), port="again")
            else:
                outputs.emit(record.key, number, port="numbers")


job = ps.Job(
    "killed",
    guarantee=os.environ.get("KILL_GUARANTEE", "exactly-once"),
    max_iterations=ROUNDS,
    parallelism=2,
    buckets=int(os.environ.get("KILL_BUCKETS", "2")),
)
source = job.source(
    "source", ps.LogSource("input", max_records_per_batch=int(os.environ.get("KILL_BATCH", "60000")))
)
start = job.task("start", lambda r: (r.value % KEYS, (r.value, 0)))
tally = job.task("tally", Tally())
route = job.task("route", Route())
visits = job.sink("visits", ps.LogSink("visits"))
numbers = job.sink("numbers", ps.LogSink("numbers", partitions=2))
files = job.sink("files", ps.FileSink(HOME / "files", format="json"))
source >> start >> tally >> route
route["again"] >> tally
route["visits"] >> visits
route["numbers"] >> numbers
route["numbers"] >> files
