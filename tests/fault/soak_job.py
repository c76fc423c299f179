"""The program of the soak: a job that is changed in place again and again until its input ends.

``python soak_job.py ENGINE SECONDS`` reconfigures the job every so many seconds: another number of buckets,
or other code in a task. It tells its memory, and how long each restart took, in files of its home.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.engine.driver.job_start import start_job
from penstock.testing.local_engine import LocalRuntime

LOCAL = "local"
KEYS = 50
A_SECOND = 100
"""Records in a second of event time."""
WINDOW = ps.TimeWindow(10, slide=5, watermark=1)
END = "end"
"""The file in the home that says that nothing more will come."""


class Running(ps.StatefulTask):
    """Numbers the values of each key: a record that is lost or doubled is seen, and so is lost state."""

    def update(self, key: Any, values: list[Any], state: Any) -> tuple[Any, list[Any]]:
        seen = state or 0
        return seen + len(values), [(key, (seen + n, value)) for n, value in enumerate(values, start=1)]


def tag(version: int) -> Any:
    """Return the code of one version; what comes out of it is the same for all of them."""
    return lambda record: ps.Record(record.value % KEYS, (record.value, version)[0], record.value / A_SECOND)


def job(version: int) -> ps.Job:
    """Return one version of the job."""
    made = ps.Job("soak", buckets=2 + version % 2, max_iterations=2)
    source = made.source("in", ps.LogSource("input"))
    tagged = source >> made.task("tag", tag(version))
    tagged >> made.task("running", Running()) >> made.sink("out", ps.LogSink("out"))
    tagged >> made.task("window", ps.Count(), window=WINDOW) >> made.sink("windows", ps.LogSink("windows"))
    # A second keyed stage: its records are always on their way when the job is stopped.
    again = tagged >> made.task("sum", ps.Sum()) >> made.task("rekey", lambda r: (r.key % 7, r.value))
    again >> made.task("last", ps.Reduce(max)) >> made.sink("maxima", ps.LogSink("maxima"))
    return made


def memory() -> dict[str, float]:
    """Return the resident memory, in MiB, of the driver and of all processes below it by kind."""
    me = psutil.Process()
    found = {"driver": me.memory_info().rss / 2**20, "java": 0.0, "workers": 0.0}
    for child in me.children(recursive=True):
        try:
            kind = "java" if child.name() == "java" else "workers"
            found[kind] += child.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return found


def note(home: Path, file: str, fields: dict[str, Any]) -> None:
    """Add a line of JSON to a file."""
    with (home / file).open("a") as lines:
        lines.write(json.dumps({"at": time.time(), "pid": os.getpid(), **fields}) + "\n")


def begin(engine: str, made: ps.Job) -> Handle:
    """Start the job on an engine."""
    return start_job(made, LocalRuntime) if engine == LOCAL else ps.start(made, master="local[2]")


def main() -> None:
    """Run until the input has ended and all of it is processed."""
    home, every = Path(os.environ["PENSTOCK_HOME"]), float(sys.argv[2])
    version = len((home / "restarts").read_text().splitlines()) if (home / "restarts").exists() else 0
    with begin(sys.argv[1], job(version)) as handle:
        restart_at = time.monotonic() + every
        while not (home / END).exists():
            handle.wait(every / 4)
            note(home, "memory", memory())
            if time.monotonic() >= restart_at:
                restart_at += every
                version += 1
                if version % 3:
                    done = handle.reconfigure(buckets=2 + version % 2, tasks={"tag": tag(version)})
                else:
                    done = handle.reconfigure(job(version))
                note(
                    home, "restarts", {"seconds": done.seconds, "batch": done.batch, "changes": done.changes}
                )
        handle.wait("drained")


if __name__ == "__main__":
    main()
