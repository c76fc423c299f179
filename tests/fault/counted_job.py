"""The job that workers of a cluster run in tests: every number is counted by its key, exactly once."""

from __future__ import annotations

import os
import time
from typing import Any

from counted_keys import key_of

import penstock as ps


class Tally(ps.StatefulTask):
    """Numbers the visits of each key: visit n of a key is emitted once, whatever batch it is in."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        time.sleep(float(os.environ.get("COUNTED_PAUSE", "0")))
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


job = ps.Job("counted", parallelism=2)
source = job.source("source", ps.LogSource("input", max_records_per_batch=4000))
source >> job.task("key", key_of) >> job.task("tally", Tally()) >> job.sink("output", ps.LogSink("output"))
