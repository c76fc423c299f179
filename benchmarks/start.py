"""How long a job of a few records takes, all of it: with what ``penstock prepare`` makes, and without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.halves import ROOT, Comparison, HalfFailedError, alternate
from benchmarks.sizes import Sizes
from benchmarks.table import Row, compare
from penstock.java_runtime import archive_folder, find_archive, find_java
from penstock.log import Log
from penstock.record import Record
from penstock.spark.warm_start import prepare

LINES = 200


def run(sizes: Sizes, work: Path) -> list[Row]:
    """Run the word count of the first tutorial as a program, in turns."""
    if find_archive(archive_folder()) is None:
        prepare()
    # Java's own archive instead of ours: what it uses when it is told of none.
    without = f"-XX:SharedArchiveFile={find_java().resolve().parents[1] / 'lib' / 'server' / 'classes.jsa'}"
    homes = count()
    processor: dict[str, list[float]] = {"": [], without: []}

    def measure(options: str) -> float:
        seconds, used = _word_count(work / f"home-{next(homes)}", options)
        processor[options].append(used)
        return seconds

    for options in processor:
        _word_count(work / f"home-{next(homes)}", options)
    ours, other = alternate(sizes.rounds, lambda: measure(""), lambda: measure(without))
    used = Comparison(tuple(processor[""]), tuple(processor[without]))
    return [
        compare(
            "start: a word count of 200 lines, from the command to its end",
            "without `penstock prepare`",
            "s",
            Comparison(ours, other),
            note=f"{median(used.ours):.1f} s of processor time instead of {median(used.other):.1f} s",
        )
    ]


def _word_count(home: Path, options: str) -> tuple[float, float]:
    """Return how long it took, and how much of a processor."""
    log = Log.create(home / "logs" / "lines")
    log.append([Record(None, f"to be or not to be, {number}") for number in range(LINES)])
    environment = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_JAVA_OPTIONS": options}
    penstock = [sys.executable, "-m", "penstock.cli.main"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*penstock, "run", "examples/wordcount.py", "--until", "drained"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise HalfFailedError(f"the word count failed:\n{done.stderr}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
