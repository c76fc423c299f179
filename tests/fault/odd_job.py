"""The job of tests of workers, with code that is not the same in every process: it keeps a random number.

The number is in the state alone, so that the output is right whichever replica's state it is that counts.
"""

from __future__ import annotations

import random
from typing import Any

from counted_keys import key_of

import penstock as ps

ODD_BATCHES = 3
"""Only the first batches of each key are odd: a replica that is rebuilt after them stays with the others."""


class Tally(ps.StatefulTask):
    """Numbers the visits of each key."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen, batches, odd = state or (0, 0, 0.0)
        odd = random.random() if batches < ODD_BATCHES else odd
        items = [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]
        return (seen + len(values), batches + 1, odd), items


job = ps.Job("counted", parallelism=2)
source = job.source("source", ps.LogSource("input", max_records_per_batch=4000))
source >> job.task("key", key_of) >> job.task("tally", Tally()) >> job.sink("output", ps.LogSink("output"))
